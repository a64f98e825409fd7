//! What has become of each row: a chart with a point for each run.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::escape;
use crate::history::{Figure, Run};
use crate::questions::{question_at_any_size, topic};

/// The size of a chart, in units of its own.
const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 90.0;

/// Shows all of them.
pub(super) fn section(page: &mut String, runs: &[Run]) {
    page.push_str(
        "<section>\n<h2 id=\"over-time\">Over time</h2>\n\
         <p>How many times as long as refdb Git took, in each recorded run, the oldest on the left. \
         Above the dashed line refdb is faster. The first runs do not say how many \
         refs they had (n), and the machines were not always the same.</p>\n\
         <details>\n<summary>Show a chart for each row</summary>\n<div class=\"charts\">\n",
    );
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.figures.keys()).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort_by_key(|name| {
        let mut parts = name.split('/');
        let format = parts.next().map(|format| format != "reftable");
        let (topic, place, _) = topic(name.rsplit('/').next().unwrap_or_default());
        (format, topic, place)
    });
    for name in names {
        chart(page, name, runs);
    }
    page.push_str("</div>\n</details>\n</section>\n");
}

fn ratio(figure: &Figure) -> Option<f64> {
    Some(figure.git_ms? / figure.refdb_ms)
}

/// Draws the ratios of one workload, one point for each run.
#[expect(clippy::cast_precision_loss, reason = "runs are few")]
fn chart(page: &mut String, name: &str, runs: &[Run]) {
    let points: Vec<(usize, f64)> = runs
        .iter()
        .enumerate()
        .filter_map(|(at, run)| Some((at, ratio(run.figures.get(name)?)?)))
        .collect();
    let Some(&(_, last)) = points.last() else {
        return;
    };
    let top = points.iter().map(|point| point.1).fold(2.0, f64::max) * 1.1;
    let y = |ratio: f64| HEIGHT - ratio / top * HEIGHT;
    let step = WIDTH / runs.len().max(2) as f64;
    let x = |at: usize| (at as f64 + 0.5) * step;
    let even = y(1.0);
    let mut parts = name.split('/');
    let (format, fsync) = (parts.next().unwrap_or(name), parts.next().unwrap_or("none"));
    let synced = match fsync {
        "none" => String::new(),
        fsync => format!(", core.fsync={}", escape(fsync)),
    };
    let question = question_at_any_size(parts.next().unwrap_or(name));
    let _ = write!(
        page,
        "<figure><figcaption>{}{synced}: {} <b>{last:.1}x</b></figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} runs, the last {last:.1}x\">\
         <line class=\"even\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{even:.1}\" y2=\"{even:.1}\"/>\
         <polyline class=\"reftable\" points=\"",
        escape(format),
        escape(&question),
        points.len()
    );
    for &(at, ratio) in &points {
        let _ = write!(page, "{:.1},{:.1} ", x(at), y(ratio));
    }
    page.push_str("\"/>");
    for (at, ratio) in points {
        let run = runs.get(at).map_or("", |run| &run.commit);
        let _ = write!(
            page,
            "<circle class=\"reftable\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}: {ratio:.1}x\
             </title></circle>",
            x(at),
            y(ratio),
            escape(run)
        );
    }
    page.push_str("</svg></figure>\n");
}

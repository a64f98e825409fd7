//! The page: the ratio to Git of every workload over time, the table of the last run, and how time
//! and memory grow with the number of refs.
//!
//! One file without anything from elsewhere: inline SVG, and colours for light and dark.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::growth::{Growth, Point};
use crate::history::{Figure, Run};

/// The size of a chart, in units of its own.
const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 90.0;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2733; --dim: #66727f; --line: #0b6bcb; --even: #c0392b;
  --page: #ffffff; --edge: #d9dee4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaee; --dim: #98a4b0; --line: #6db3f2;
  --even: #ff8a75; --page: #14181d; --edge: #333c46; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { border-bottom: 1px solid var(--edge);
  padding: .2rem .8rem; text-align: right; } td:first-child, th:first-child { text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { color: var(--dim); } svg { width: 100%; }
.slower { color: var(--even); }
";

/// Returns the page.
pub(crate) fn render(runs: &[Run], growth: Option<&Growth>) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>refdb beside Git</title>\n<style>{STYLE}</style>\n<h1>refdb beside Git</h1>\n"
    );
    match runs.last() {
        Some(last) => compare(&mut page, runs, last),
        None => page.push_str("<p>Nothing has been compared yet.</p>\n"),
    }
    if let Some(growth) = growth {
        grow(&mut page, growth);
    }
    page.push_str("</html>\n");
    page
}

/// Shows the last run beside Git, and what has become of each workload.
fn compare(page: &mut String, runs: &[Run], last: &Run) {
    let _ = write!(
        page,
        "<p>How many times as long Git takes for the same work, at the same durability, in the same \
         run. Above the dashed line refdb is faster.</p>\n\
         <h2>Last run</h2>\n<p>{} on {}, {}, commit {}</p>\n",
        escape(&last.date),
        escape(&last.machine),
        escape(&last.git),
        escape(&last.commit)
    );
    table(page, last);
    page.push_str("<h2>Over time</h2>\n<div class=\"charts\">\n");
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.figures.keys()).collect();
    for name in names {
        chart(page, name, runs);
    }
    page.push_str("</div>\n");
}

/// Shows how each workload grows: a table, and a curve with logarithms on both axes.
fn grow(page: &mut String, growth: &Growth) {
    let all = growth.figures.values().flat_map(BTreeMap::keys);
    let sizes: BTreeSet<u64> = all.copied().collect();
    let _ = write!(
        page,
        "<h2>Growth</h2>\n<p>Time (and memory) by the number of refs, of refdb alone: {}, {}, commit \
         {}. What stays level does not depend on how many refs there are. The memory is all that was \
         in it at once, pages of mapped tables and of packed-refs among it, which the system takes \
         back when it needs them.</p>\n<table>\n\
         <tr><th>workload",
        escape(&growth.date),
        escape(&growth.machine),
        escape(&growth.commit)
    );
    for size in &sizes {
        let _ = write!(page, "<th>{size} refs");
    }
    page.push_str("<th></tr>\n");
    for (name, points) in &growth.figures {
        let _ = write!(page, "<tr><td>{}", escape(name));
        for size in &sizes {
            let _ = match points.get(size) {
                Some(Point { ms, mib }) => write!(page, "<td>{ms:.1} ms, {mib:.1} MiB"),
                None => write!(page, "<td>-"),
            };
        }
        let _ = writeln!(page, "<td>{}</tr>", curve(points));
    }
    page.push_str("</table>\n");
}

/// Draws time over size. One unit to the right and one up are each ten times as much.
#[expect(clippy::cast_precision_loss, reason = "only drawn")]
fn curve(points: &BTreeMap<u64, Point>) -> String {
    let logs = points.iter();
    let logs = logs.map(|(&size, point)| ((size as f64).log10(), point.ms.max(0.001).log10()));
    let logs: Vec<(f64, f64)> = logs.collect();
    let least = |part: fn(&(f64, f64)) -> f64| logs.iter().map(part).fold(f64::INFINITY, f64::min);
    let (left, bottom) = (least(|log| log.0), least(|log| log.1));
    let mut svg = String::from(
        "<svg viewBox=\"-4 -4 128 98\" width=\"128\" height=\"98\" role=\"img\"><polyline \
         fill=\"none\" stroke=\"var(--line)\" stroke-width=\"2\" points=\"",
    );
    for (size, ms) in logs {
        let (x, y) = ((size - left) * 30.0, 90.0 - (ms - bottom) * 30.0);
        let _ = write!(svg, "{x:.1},{y:.1} ");
    }
    svg.push_str("\"/></svg>");
    svg
}

fn ratio(figure: &Figure) -> Option<f64> {
    Some(figure.git_ms? / figure.refdb_ms)
}

fn table(page: &mut String, run: &Run) {
    page.push_str("<table>\n<tr><th>workload<th>refdb ms<th>Git ms<th>ratio<th>refdb MiB</tr>\n");
    for (name, figure) in &run.figures {
        let git = figure
            .git_ms
            .map_or("too long".to_owned(), |ms| format!("{ms:.1}"));
        let ratio = ratio(figure);
        let class = if ratio.is_some_and(|ratio| ratio < 1.0) {
            " class=\"slower\""
        } else {
            ""
        };
        let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.1}x"));
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{:.1}<td>{git}<td{class}>{ratio}<td>{:.1}</tr>",
            escape(name),
            figure.refdb_ms,
            figure.refdb_mib
        );
    }
    page.push_str("</table>\n");
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
    let _ = write!(
        page,
        "<figure><figcaption>{} <b>{last:.1}x</b></figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
         <line x1=\"0\" x2=\"{WIDTH}\" y1=\"{even:.1}\" y2=\"{even:.1}\" stroke=\"var(--even)\" \
         stroke-dasharray=\"4 4\"/><polyline fill=\"none\" stroke=\"var(--line)\" \
         stroke-width=\"2\" points=\"",
        escape(name)
    );
    for &(at, ratio) in &points {
        let _ = write!(page, "{:.1},{:.1} ", x(at), y(ratio));
    }
    page.push_str("\"/>");
    for (at, ratio) in points {
        let run = runs.get(at).map_or("", |run| &run.commit);
        let _ = write!(
            page,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"var(--line)\"><title>{}: {ratio:.1}x\
             </title></circle>",
            x(at),
            y(ratio),
            escape(run)
        );
    }
    page.push_str("</svg></figure>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read_from;

    #[test]
    fn the_page_shows_every_run_and_marks_what_is_slower() {
        let runs = read_from(concat!(
            r#"{"commit":"a1","date":"2026-01-01","machine":"m<1>","git":"git version 2.55.0","#,
            r#""figures":{"files/none/list":[10.0,40.0,3.0],"files/none/pack":[10.0,5.0,3.0]}}"#,
            "\n",
            r#"{"commit":"b2","date":"2026-01-02","machine":"m<1>","git":"git version 2.55.0","#,
            r#""figures":{"files/none/list":[10.0,60.0,3.0],"files/none/pack":[10.0,null,3.0]}}"#,
        ))
        .expect("two runs");
        let page = render(&runs, None);
        assert!(
            page.contains("a1: 4.0x") && page.contains("b2: 6.0x"),
            "{page}"
        );
        assert!(page.contains("<td>too long<td>-"), "{page}");
        assert!(page.contains("m&lt;1>"), "{page}");
        let before = render(&runs[..1], None);
        assert!(before.contains("<td class=\"slower\">0.5x"), "{before}");
    }

    #[test]
    fn what_grows_tenfold_rises_as_far_as_it_goes_to_the_right() {
        let growth = crate::growth::read_from(
            r#"{"commit":"c3","figures":{"files/none/list":{"10":[1.0,2.0],"100":[10.0,2.0]}}}"#,
        )
        .expect("one workload");
        let alone = render(&[], Some(&growth));
        assert!(
            alone.contains("<h2>Growth</h2>") && alone.ends_with("</html>\n"),
            "{alone}"
        );
        let run = r#"{"commit":"a1","figures":{}}"#;
        let page = render(&read_from(run).expect("one run"), Some(&growth));
        assert!(page.contains("<td>10.0 ms, 2.0 MiB"), "{page}");
        assert!(page.contains("points=\"0.0,90.0 30.0,60.0 \""), "{page}");
    }
}

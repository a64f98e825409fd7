//! The rows beside Git: by format and by topic, each with its ratio as a bar.

use std::fmt::Write;

use super::{duration, escape, mebibytes};
use crate::questions::{Topic, grouped};
use crate::rows::{Row, Rows, by_run, command};

/// Below this ratio a row is told apart from the others.
const CLOSE: f64 = 2.0;
/// The ratio at which a bar fills its column; each tenth of it is as far to the left as the next.
const FULL: f64 = 1000.0;

/// Returns what a format is called in an address.
pub(super) fn id((format, fsync): (&str, &str)) -> String {
    escape(&match fsync {
        "none" => format.to_owned(),
        fsync => format!("{format}-{fsync}"),
    })
}

pub(super) fn title((format, fsync): (&str, &str)) -> String {
    escape(&match fsync {
        "none" => format!("{format} beside Git"),
        fsync => format!("{format} beside Git, core.fsync={fsync}"),
    })
}

/// Shows a section for each format.
pub(super) fn sections(page: &mut String, rows: &Rows<'_>) {
    for group in rows.groups() {
        let _ = writeln!(
            page,
            "<section>\n<h2 id=\"{}\">{}</h2>",
            id(group),
            title(group)
        );
        origin(page, rows, group);
        page.push_str(
            "<p>The bar is how many times as long Git takes. Its marks are at 1, 10, 100 and 1,000 times: \
             each is ten times the one before, so that a bar of half the length is far less than half. \
             <span class=\"close-key\">Under 2 times</span> is marked. Times are medians, of all \
             processes of a row together.</p>\n",
        );
        let topics = rows.topics(group);
        summary(page, &topics);
        for (topic, rows) in &topics {
            table(page, group, topic, rows);
        }
        page.push_str("</section>\n");
    }
}

/// Says where, when and with what it was measured.
fn origin(page: &mut String, rows: &Rows<'_>, group: (&str, &str)) {
    page.push_str("<ul class=\"origin\">\n");
    for (at, (run, of_run)) in rows.runs(group).iter().enumerate() {
        let questions: Vec<String> = of_run.iter().map(Row::question).collect();
        let which = match at {
            0 => format!("{} refs", grouped(rows.refs)),
            _ => format!("But for this: {}", questions.join("; ")),
        };
        let _ = writeln!(
            page,
            "<li>{}: {}, {}, {}, refdb at commit {}",
            escape(&which),
            escape(&run.date),
            escape(&run.machine),
            escape(&run.git),
            escape(&run.commit)
        );
    }
    page.push_str("</ul>\n");
}

/// Says first what is slow: how many rows are close to Git's time, or behind it.
fn summary(page: &mut String, topics: &[(&Topic, Vec<Row<'_>>)]) {
    let rows = || topics.iter().flat_map(|(_, rows)| rows);
    let below = |most: f64| rows().filter(move |row| row.ratio().is_some_and(|ratio| ratio < most));
    let count = |number: usize| match number {
        0 => "none".to_owned(),
        number => number.to_string(),
    };
    let slower = below(1.0).count();
    let _ = writeln!(
        page,
        "<p><strong>Of {} rows refdb is slower than Git in {}, and less than twice as fast in {}.\
         </strong></p>",
        rows().count(),
        count(slower),
        count(below(CLOSE).count() - slower)
    );
}

/// Shows one topic, and the command that measures it again.
fn table(page: &mut String, group: (&str, &str), topic: &Topic, rows: &[Row<'_>]) {
    let _ = write!(
        page,
        "<h3>{}</h3>\n<table class=\"rows\">\n<caption>How long does it take to&hellip;</caption>\n\
         <thead><tr><th scope=\"col\">&hellip; do this<th scope=\"col\">refdb<th scope=\"col\">Git\
         <th scope=\"col\">Git takes &hellip; times as long<th scope=\"col\">refdb's memory</tr></thead>\n<tbody>\n",
        topic.title
    );
    for row in rows {
        line(page, row);
    }
    page.push_str("</tbody>\n</table>\n");
    for (_, of_run) in by_run(rows.iter().copied()) {
        let label = format!("Copy the command for {}, {}", topic.title, title(group));
        super::command(page, "Measure this again:", &command(&of_run), &label);
    }
}

fn line(page: &mut String, row: &Row<'_>) {
    let git = match (row.figure.git_ms, row.run.limit_ms()) {
        (Some(ms), _) => duration(ms),
        (None, Some(limit)) => format!("over {}", duration(limit)),
        (None, None) => "too long".to_owned(),
    };
    let (class, remark) = match row.ratio() {
        Some(ratio) if ratio < 1.0 => ("slower", "slower than Git"),
        Some(ratio) if ratio < CLOSE => ("close", "under 2 times"),
        _ => ("", ""),
    };
    let remark = match remark {
        "" => String::new(),
        remark => format!(" <em>{remark}</em>"),
    };
    let length = row.ratio().map_or(0.0, |ratio| {
        (ratio.log10() / FULL.log10() * 100.0).clamp(0.5, 100.0)
    });
    let _ = writeln!(
        page,
        "<tr class=\"{class}\"><th scope=\"row\">{}?<td data-of=\"refdb\">{}<td data-of=\"Git\">{git}\
         <td class=\"ratio\"><span class=\"bar\" aria-hidden=\"true\"><span style=\"width:{length:.1}%\">\
         </span></span><b>{}</b>{remark}<td data-of=\"memory\">{}</tr>",
        escape(&row.question()),
        duration(row.figure.refdb_ms),
        row.shown_ratio(),
        mebibytes(row.figure.refdb_mib)
    );
}

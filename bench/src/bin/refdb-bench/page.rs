//! The page: how time and memory grow with the number of refs, every row beside Git, how near single
//! processes are to what none can do without, and what has become of each row over time.
//!
//! One file without anything from elsewhere: inline SVG, a style and a script of its own, colours for
//! light and dark. Without the script all figures are there, only none is picked out.

mod compare;
mod floor;
mod grow;
mod over_time;

use std::fmt::Write;

use crate::growth::Growth;
use crate::history::Run;
use crate::processes::Processes;
use crate::rows::{Rows, nearest};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// Returns the page.
pub(crate) fn render(
    runs: &[Run],
    growth: Option<&Growth>,
    processes: Option<&Processes>,
) -> String {
    let rows = Rows::last(runs);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>refdb beside Git</title>\n<style>\n{STYLE}</style>\n\
         <a class=\"skip\" href=\"#content\">To the figures</a>\n\
         <header>\n<h1>refdb beside Git</h1>\n\
         <p>How long refdb takes for what people do with refs, how that grows, and how long Git takes for \
         the same.</p>\n"
    );
    contents(
        &mut page,
        rows.as_ref(),
        growth.is_some(),
        processes.is_some(),
    );
    page.push_str("</header>\n<main id=\"content\">\n");
    if let Some(growth) = growth {
        grow::section(&mut page, growth);
    }
    if let Some(rows) = &rows {
        compare::sections(&mut page, rows);
    }
    if let Some(processes) = processes {
        floor::section(&mut page, processes);
    }
    match runs {
        [] => page.push_str("<p>Nothing has been compared yet.</p>\n"),
        runs => over_time::section(&mut page, runs),
    }
    let _ = write!(
        page,
        "</main>\n<p class=\"status\" role=\"status\"></p>\n<script>\n{SCRIPT}</script>\n</html>\n"
    );
    page
}

/// Lists the sections.
fn contents(page: &mut String, rows: Option<&Rows<'_>>, has_growth: bool, has_floor: bool) {
    page.push_str("<nav aria-label=\"Sections\"><ul>\n");
    if has_growth {
        page.push_str("<li><a href=\"#growth\">How it grows</a>\n");
    }
    for group in rows.map(Rows::groups).unwrap_or_default() {
        let (id, title) = (compare::id(group), compare::title(group));
        let _ = writeln!(page, "<li><a href=\"#{id}\">{title}</a>");
    }
    if has_floor {
        page.push_str("<li><a href=\"#floor\">The floor of a process</a>\n");
    }
    page.push_str("<li><a href=\"#over-time\">Over time</a>\n</ul></nav>\n");
}

/// Returns a time as people say it.
fn duration(ms: f64) -> String {
    let seconds = |text: String| text.trim_end_matches('0').trim_end_matches('.').to_owned() + " s";
    match ms {
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 9_995.0 => seconds(format!("{:.2}", ms / 1e3)),
        ms => seconds(format!("{:.1}", ms / 1e3)),
    }
}

fn mebibytes(mib: f64) -> String {
    match mib {
        mib if mib < 9.95 => format!("{mib:.1} MiB"),
        mib => format!("{} MiB", nearest(mib)),
    }
}

/// Shows a command, with a button that copies it.
fn command(page: &mut String, lead: &str, command: &str, label: &str) {
    let words: Vec<String> = command
        .split(' ')
        .map(|word| format!("<span>{}</span>", escape(word)))
        .collect();
    let _ = writeln!(
        page,
        "<div class=\"again\"><p>{lead}</p><pre><code>{}</code></pre><button type=\"button\" \
         class=\"copy\" aria-label=\"{}\">Copy</button></div>",
        words.join(" "),
        escape(label)
    );
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
            r#""options":"--refs 100","figures":"#,
            r#"{"files/none/list":[10.0,40.0,3.0],"files/none/pack":[10.0,5.0,3.0]}}"#,
            "\n",
            r#"{"commit":"b2","date":"2026-01-02","machine":"m<1>","git":"git version 2.55.0","#,
            r#""options":"--refs 100","figures":"#,
            r#"{"files/none/list":[10.0,60.0,3.0],"files/none/pack":[10.0,null,3.0]}}"#,
        ))
        .expect("two runs");
        let page = render(&runs, None, None);
        assert!(
            page.contains("a1: 4.0x") && page.contains("b2: 6.0x"),
            "{page}"
        );
        assert!(
            page.contains(">too long<") && page.contains(">-<"),
            "{page}"
        );
        assert!(page.contains("m&lt;1>"), "{page}");
        let before = render(&runs[..1], None, None);
        assert!(before.contains("class=\"slower\""), "{before}");
        assert!(before.contains("0.5x"), "{before}");
        // A run that does not say how many refs there were is seen over time, and nowhere else.
        let unsaid = read_from(r#"{"commit":"a1","figures":{"files/none/list":[1.0,9.0,3.0]}}"#);
        let page = render(&unsaid.expect("one run"), None, None);
        assert!(
            page.contains("a1: 9.0x") && !page.contains("<table"),
            "{page}"
        );
    }

    #[test]
    fn what_grows_tenfold_rises_as_far_as_it_goes_to_the_right() {
        let growth = crate::growth::read_from(
            r#"{"commit":"c3","figures":{"files/none/list":{"10":[1.0,2.0],"100":[10.0,2.0]}}}"#,
        )
        .expect("one workload");
        let alone = render(&[], Some(&growth), None);
        assert!(
            alone.contains("<h2 id=\"growth\">") && alone.ends_with("</html>\n"),
            "{alone}"
        );
        let run = r#"{"commit":"a1","figures":{}}"#;
        let page = render(&read_from(run).expect("one run"), Some(&growth), None);
        assert!(
            page.contains(">10 ms<") && page.contains(">2.0 MiB<"),
            "{page}"
        );
        assert!(page.contains("points=\"0.0,40.0 40.0,0.0 \""), "{page}");
    }

    #[test]
    fn the_page_is_the_one_of_the_recorded_figures_and_needs_nothing_else() {
        let workspace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let file =
            |path: &str| crate::read(&workspace.join(path)).expect("a file of the workspace");
        let runs = read_from(&file("bench/history.jsonl")).expect("the history");
        let growth = crate::growth::read_from(&file("bench/growth.json")).expect("the growth");
        let processes = crate::processes::read_from(&file("bench/processes.json"));
        let processes = processes.expect("the processes");
        let page = render(&runs, Some(&growth), Some(&processes));
        assert!(
            page == file("docs/benchmarks.html"),
            "the page differs from what is recorded: cargo run -p refdb-bench -- page"
        );
        for word in ["http:", "https:", " src=", "<link", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}

//! How near single processes are to what no process can do without.

use std::fmt::Write;

use super::{command, escape};
use crate::processes::Processes;

/// Writes the section.
pub(super) fn section(page: &mut String, processes: &Processes) {
    page.push_str("<h2 id=\"floor\">One process for one ref: how near the floor is</h2>\n");
    let _ = writeln!(page, "<p>{}</p>", code(&processes.floor()));
    page.push_str("<div class=\"scroll\" tabindex=\"0\"><table class=\"floor\">\n<thead><tr>");
    for head in Processes::heads() {
        let _ = write!(page, "<th scope=\"col\">{head}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for cells in processes.cells() {
        let [name, figures @ ..] = cells;
        let _ = write!(page, "<tr><th scope=\"row\">{}</th>", code(&name));
        for figure in figures {
            let _ = write!(page, "<td>{figure}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    let _ = writeln!(page, "<p>{}.</p>", escape(&processes.origin()));
    let label = "Copy the command that measures single processes";
    command(page, "Again:", "scripts/process-speed --record", label);
}

/// Returns text in which what stands between backquotes is code.
fn code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    });
    parts.collect()
}

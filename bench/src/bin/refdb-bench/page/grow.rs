//! How time and memory grow with the number of refs: a pair of curves for each workload, and the figures
//! of a size that the reader chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{duration, escape, mebibytes};
use crate::growth::{Growth, Point};
use crate::questions::{grouped, question_at_any_size, topic};
use crate::rows::{FORMATS, nearest};

/// How far apart a number and ten times the number are, on both axes.
const DECADE: f64 = 40.0;

/// The points of one workload, by format.
type Curves<'a> = Vec<(&'a str, &'a BTreeMap<u64, Point>)>;

/// What is drawn on the vertical axis.
struct Axis {
    title: &'static str,
    of: fn(&Point) -> f64,
    shown: fn(f64) -> String,
    /// The lowest and the highest power of ten.
    from: i32,
    to: i32,
}

/// Shows all of it.
pub(super) fn section(page: &mut String, growth: &Growth) {
    let all = growth.figures.values().flat_map(BTreeMap::keys);
    let sizes: BTreeSet<u64> = all.copied().collect();
    let sizes: Vec<u64> = sizes.into_iter().collect();
    let _ = write!(
        page,
        "<section class=\"growth\">\n<h2 id=\"growth\">How it grows</h2>\n\
         <p>Time and memory by the number of refs (n), of refdb alone. One step to the right is ten times \
         as many refs, one step up ten times as much time or memory: a level curve does not depend on how \
         many refs there are, one that rises as far as it goes to the right grows in proportion. The \
         memory is all that was in it at once, mapped files among it, which the system takes back when it \
         needs them. Creating, changing, deleting and packing so many refs was measured in <code>reftable</code> \
         alone.</p>\n\
         <ul class=\"origin\">\n<li>{}, {}, refdb at commit {}, nothing synced\n</ul>\n",
        escape(&growth.date),
        escape(&growth.machine),
        escape(&growth.commit)
    );
    choice(page, &sizes);
    legend(page);
    let points = || growth.figures.values().flat_map(BTreeMap::values);
    let time = axis("time", |point| point.ms, duration, points());
    let memory = axis("memory in MiB", |point| point.mib, nearest, points());
    page.push_str("<div class=\"charts\">\n");
    for (workload, curves) in by_workload(growth) {
        let _ = write!(
            page,
            "<figure><figcaption>{}</figcaption>\n<div class=\"pair\">",
            escape(&question_at_any_size(workload))
        );
        for axis in [&time, &memory] {
            chart(page, axis, &sizes, &curves);
        }
        page.push_str("</div>\n");
        figures(page, &sizes, &curves);
        page.push_str("</figure>\n");
    }
    page.push_str("</div>\n");
    let all: Vec<String> = sizes.iter().map(u64::to_string).collect();
    super::command(
        page,
        "Measure this again (the largest size takes ten minutes):",
        &format!("scripts/growth {}", all.join(" ")),
        "Copy the command that measures growth",
    );
    page.push_str("</section>\n");
}

/// Lets the reader choose a size; the script shows it, and the element only with it.
fn choice(page: &mut String, sizes: &[u64]) {
    let last = sizes.len().saturating_sub(1);
    let names: Vec<String> = sizes.iter().copied().map(grouped).collect();
    let _ = write!(
        page,
        "<div class=\"choice\" hidden>\n<label for=\"size\">Figures for <output for=\"size\">{}\
         </output> refs</label>\n<input type=\"range\" id=\"size\" min=\"0\" max=\"{last}\" step=\"1\" \
         value=\"{last}\" data-sizes=\"{}\">\n<div class=\"ticks\" aria-hidden=\"true\">",
        names.last().map_or("0", String::as_str),
        names.join(" ")
    );
    for name in names {
        let _ = write!(page, "<span>{name}</span>");
    }
    page.push_str("</div>\n</div>\n");
}

fn legend(page: &mut String) {
    page.push_str("<p class=\"legend\">");
    for format in FORMATS {
        let _ = write!(
            page,
            "<span><svg viewBox=\"0 0 30 10\" width=\"30\" height=\"10\" aria-hidden=\"true\">\
             <line class=\"{format}\" x1=\"0\" x2=\"30\" y1=\"5\" y2=\"5\"/></svg> {format}</span> "
        );
    }
    page.push_str("</p>\n");
}

/// Returns the workloads in the order of the topics.
fn by_workload(growth: &Growth) -> Vec<(&str, Curves<'_>)> {
    let mut found: Vec<(&str, Curves<'_>)> = Vec::new();
    for (name, points) in &growth.figures {
        let mut parts = name.split('/');
        let format = parts.next().unwrap_or_default();
        let workload = parts.next_back().unwrap_or_default();
        match found.iter_mut().find(|(other, _)| *other == workload) {
            Some((_, curves)) => curves.push((format, points)),
            None => found.push((workload, vec![(format, points)])),
        }
    }
    for (_, curves) in &mut found {
        curves.sort_by_key(|(format, _)| FORMATS.iter().position(|known| known == format));
    }
    found.sort_by_key(|(workload, _)| {
        let (topic, place, _) = topic(workload);
        (topic, place)
    });
    found
}

/// Returns the axis on which all points have room.
#[expect(clippy::cast_possible_truncation, reason = "powers of ten are small")]
fn axis<'a>(
    title: &'static str,
    of: fn(&Point) -> f64,
    shown: fn(f64) -> String,
    points: impl Iterator<Item = &'a Point> + Clone,
) -> Axis {
    let logs = points.map(|point| logarithm(of(point)));
    let from = logs.clone().fold(f64::INFINITY, f64::min).floor() as i32;
    let to = logs.fold(f64::NEG_INFINITY, f64::max).ceil() as i32;
    Axis {
        title,
        of,
        shown,
        from,
        to: to.max(from + 1),
    }
}

fn logarithm(value: f64) -> f64 {
    value.max(0.001).log10()
}

/// Draws the curves of one workload.
#[expect(clippy::cast_precision_loss, reason = "only drawn")]
fn chart(page: &mut String, axis: &Axis, sizes: &[u64], curves: &Curves<'_>) {
    let left = sizes.first().map_or(0.0, |&size| (size as f64).log10());
    let right = sizes.last().map_or(1.0, |&size| (size as f64).log10());
    let x = |size: u64| ((size as f64).log10() - left) * DECADE;
    let (width, height) = (
        (right - left).max(1.0) * DECADE,
        f64::from(axis.to - axis.from) * DECADE,
    );
    let y = |value: f64| height - (logarithm(value) - f64::from(axis.from)) * DECADE;
    let _ = write!(
        page,
        "<svg viewBox=\"-46 -24 {:.0} {:.0}\" role=\"img\" aria-label=\"{} by number of refs\">\
         <text class=\"title\" x=\"-44\" y=\"-13\">{}</text>",
        width + 64.0,
        height + 46.0,
        axis.title,
        axis.title
    );
    for power in axis.from..=axis.to {
        let value = 10_f64.powi(power);
        let level = y(value);
        let _ = write!(
            page,
            "<line class=\"grid\" x1=\"0\" x2=\"{width:.0}\" y1=\"{level:.1}\" y2=\"{level:.1}\"/>\
             <text class=\"end\" x=\"-5\" y=\"{:.1}\">{}</text>",
            level + 3.5,
            round(&(axis.shown)(value))
        );
    }
    for (at, &size) in sizes.iter().enumerate() {
        let _ = write!(
            page,
            "<line class=\"size\" data-at=\"{at}\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"0\" \
             y2=\"{height:.0}\"/><text class=\"middle\" x=\"{0:.1}\" y=\"{1:.0}\">{2}</text>",
            x(size),
            height + 16.0,
            short(size)
        );
    }
    for (format, points) in curves {
        let _ = write!(page, "<polyline class=\"{}\" points=\"", escape(format));
        for (&size, point) in *points {
            let _ = write!(page, "{:.1},{:.1} ", x(size), y((axis.of)(point)));
        }
        page.push_str("\"/>");
    }
    page.push_str("</svg>");
}

/// Lists the figures of each size.
fn figures(page: &mut String, sizes: &[u64], curves: &Curves<'_>) {
    for (at, size) in sizes.iter().enumerate() {
        let _ = write!(
            page,
            "<table class=\"figures\" data-at=\"{at}\"><caption>{} refs</caption>",
            grouped(*size)
        );
        for (format, points) in curves {
            if let Some(point) = points.get(size) {
                let _ = write!(
                    page,
                    "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>",
                    escape(format),
                    duration(point.ms),
                    mebibytes(point.mib)
                );
            }
        }
        page.push_str("</table>\n");
    }
}

/// Returns a number of refs for the axis.
fn short(size: u64) -> String {
    match size {
        size if size >= 1_000_000 && size % 1_000_000 == 0 => format!("{}M", size / 1_000_000),
        size if size >= 1_000 && size % 1_000 == 0 => format!("{}k", size / 1_000),
        size => size.to_string(),
    }
}

/// Returns a power of ten without the digits that are always zero.
fn round(text: &str) -> String {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}").trim_end().to_owned()
}

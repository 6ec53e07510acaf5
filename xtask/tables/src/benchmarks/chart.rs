//! One backend's ratios as a bar chart, in SVG: readable on a light and on a dark page, and without a script.

use std::fmt::Write as _;

use super::figures::{Backend, Line, ratio};
use super::goal::Goal;

const WIDTH: f64 = 760.0;
/// Where bars begin; the scenarios' names are left of it.
const LEFT: f64 = 160.0;
/// Where the longest bar ends; its value is right of it.
const RIGHT: f64 = 700.0;
const TOP: f64 = 78.0;
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;
const BELOW: f64 = 46.0;
/// The axis reaches at least this value, and further if a bar does.
const AXIS: f64 = 1.2;
/// Longer bars end here, with their value.
const AXIS_AT_MOST: f64 = 2.0;

/// Colours for both kinds of page; the picture has its own background, so that the page's does not show
/// through.
const STYLE: &str = "\
.ground{fill:#ffffff}text{fill:#24292f;font:13px system-ui,sans-serif}.title{font-size:16px;font-weight:600}\
.small{font-size:11px;fill:#57606a}.bar{fill:#2f6fb3}.missed{fill:#c2571a}.grid{stroke:#d0d7de}.one{stroke:#24292f}\
.goal{stroke:#24292f;stroke-width:2}@media(prefers-color-scheme:dark){.ground{fill:#0d1117}text{fill:#e6edf3}\
.small{fill:#9da7b3}.bar{fill:#58a6ff}.missed{fill:#f0883e}.grid{stroke:#30363d}.one{stroke:#e6edf3}.goal{stroke:#e6edf3}}";

/// Returns the chart of every scenario that has a ratio to the hand-written client, or to an empty queue.
pub(super) fn svg(backend: &Backend) -> String {
    let bars: Vec<(&Line, f64)> =
        backend.lines.iter().filter(|line| line.verified == Some(true)).filter_map(with_ratio).collect();
    let longest = bars.iter().map(|(_, ratio)| *ratio).fold(AXIS, f64::max).min(AXIS_AT_MOST);
    let scale = |value: f64| LEFT + value.min(longest) / longest * (RIGHT - LEFT);
    let rows = bars.iter().fold(0.0, |rows, _| rows + 1.0);
    let (bottom, height) = (TOP + rows * ROW, TOP + rows * ROW + BELOW);
    let name = &backend.name;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title what\">\n\
         <title id=\"title\">{name}: anyqueue against a hand-written client</title>\n\
         <desc id=\"what\">Ratios by scenario: {}</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"16\" y=\"28\">{name}: anyqueue against a hand-written client</text>\n\
         <text class=\"small\" x=\"16\" y=\"48\">Ratio: 1 equals the hand-written client (backlog, in-flight: \
         an empty queue). Latency: hand-written / anyqueue.</text>\n",
        described(&bars),
    );
    grid(&mut text, longest, bottom, &scale);
    let mut y = TOP;
    for (line, value) in &bars {
        bar(&mut text, backend, line, *value, y, &scale);
        y += ROW;
    }
    text.push_str("</svg>\n");
    text
}

fn with_ratio(line: &Line) -> Option<(&Line, f64)> {
    Some((line, line.ratio.filter(|_| line.without_per_s.is_none())?))
}

fn described(bars: &[(&Line, f64)]) -> String {
    let told = |(line, value): &(&Line, f64)| format!("{} {value:.2}", line.scenario);
    bars.iter().map(told).collect::<Vec<_>>().join(", ")
}

/// Draws a line for each fifth, a strong one at 1, and their values.
fn grid(text: &mut String, longest: f64, bottom: f64, scale: &impl Fn(f64) -> f64) {
    for fifth in 0..=10_u8 {
        let value = f64::from(fifth) / 5.0;
        if value > longest {
            break;
        }
        let (x, class) = (scale(value), if fifth == 5 { "one" } else { "grid" });
        let _ = writeln!(
            text,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"small\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value:.1}</text>",
            TOP - 6.0,
            bottom + 16.0,
        ); // writing to a string does not fail
    }
    let _ = writeln!(
        text,
        "<text class=\"small\" x=\"16\" y=\"{:.1}\">A mark across a bar is its goal; bars that miss it have the other colour.</text>",
        bottom + 36.0,
    );
}

fn bar(text: &mut String, backend: &Backend, line: &Line, value: f64, y: f64, scale: &impl Fn(f64) -> f64) {
    let goal = Goal::of(&backend.name, &line.scenario);
    let missed = goal.and_then(|goal| goal.reached(line, backend)) == Some(false);
    let (class, end) = (if missed { "missed" } else { "bar" }, scale(value));
    let middle = y + BAR - 3.0;
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>\
         <rect class=\"{class}\" x=\"{LEFT:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR:.1}\" rx=\"2\"/>\
         <text x=\"{:.1}\" y=\"{middle:.1}\">{}</text>",
        LEFT - 10.0,
        line.scenario,
        end - LEFT,
        end + 8.0,
        ratio(Some(value)),
    );
    if let Some(x) = goal.and_then(|goal| goal.least_ratio()).map(scale) {
        let _ = writeln!(
            text,
            "<line class=\"goal\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
            y - 3.0,
            y + BAR + 3.0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(scenario: &str, ratio: f64) -> Line {
        Line { scenario: scenario.to_owned(), ratio: Some(ratio), verified: Some(true), ..Line::default() }
    }

    #[test]
    fn a_bar_is_as_long_as_its_ratio_and_shows_whether_it_misses_its_goal() {
        let lines = vec![line("push-8", 0.6), line("push-batch", 1.2), line("idle", f64::NAN)];
        let backend = Backend { name: "postgres".to_owned(), lines };
        let chart = svg(&backend);
        assert!(chart.contains("<rect class=\"missed\" x=\"160.0\" y=\"78.0\" width=\"270.0\""), "{chart}");
        assert!(chart.contains("<rect class=\"bar\" x=\"160.0\" y=\"104.0\" width=\"540.0\""), "{chart}");
        assert!(chart.contains("push-8 0.60, push-batch 1.20"), "{chart}");
    }

    #[test]
    fn what_is_compared_with_anyqueue_itself_alone_has_no_bar() {
        let added = Line { without_per_s: Some(1.0), ..line("drain-ledger", 0.9) };
        let chart = svg(&Backend { name: "b".to_owned(), lines: vec![added] });
        assert!(!chart.contains("drain-ledger"), "{chart}");
    }

    #[test]
    fn what_was_not_verified_has_no_bar() {
        let failed = Line { verified: Some(false), ..line("push-8", 9.0) };
        let chart = svg(&Backend { name: "b".to_owned(), lines: vec![failed] });
        assert!(!chart.contains("push-8"), "{chart}");
    }
}

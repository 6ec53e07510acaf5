//! Charts, drawn by the service: they need no script.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use super::text::short;
use crate::history::{Point, Rates};

/// The size of a chart, in its own units.
pub(super) const WIDTH: f64 = 300.0;
pub(super) const HEIGHT: f64 = 80.0;
/// The most points of a line: each is the mean of the values that fall on it.
const COLUMNS: usize = 100;
/// A shorter time is not drawn.
const SHORTEST: Duration = Duration::from_secs(3);

/// A chart.
pub(crate) struct Chart {
    pub(crate) name: &'static str,
    /// The class that colours it.
    pub(crate) class: &'static str,
    /// Its latest value, its greatest value, and the top of its scale.
    pub(crate) now: String,
    pub(crate) most: String,
    pub(crate) top: String,
    pub(crate) line: String,
    pub(crate) area: String,
}

/// Charts over the same time; those in a row that count the same things have the same scale.
pub(crate) struct Charts {
    /// How long ago they begin.
    pub(crate) begin: String,
    pub(crate) rows: Vec<Vec<Chart>>,
}

/// A chart before it has a scale: the mean of each column that has values.
struct Series {
    name: &'static str,
    class: &'static str,
    values: Vec<(f64, f64)>,
    now: f64,
}

/// The charts of a queue, or of all together; `None` until there is some history.
pub(crate) fn charts(points: &[Point]) -> Option<Charts> {
    let (first, last) = (points.first()?, points.last()?);
    let span = last.at.duration_since(first.at).ok().filter(|span| *span >= SHORTEST)?;
    let of = |name, class, value: &dyn Fn(&Point) -> Option<f64>| series(name, class, points, value);
    let rate = |of: fn(&Rates) -> f64| move |point: &Point| point.rates.as_ref().map(of);
    #[allow(clippy::cast_precision_loss, reason = "a chart is a few hundred pixels wide")]
    let count = |of: fn(&Point) -> u64| move |point: &Point| Some(of(point) as f64);
    let mut rows = Vec::new();
    if points.iter().any(|point| point.rates.is_some()) {
        rows.push(same_scale(
            vec![
                of("Pushed a second", "ready", &rate(|rates| rates.pushed)),
                of("Succeeded a second", "good", &rate(|rates| rates.succeeded)),
                of("Died a second", "bad", &rate(|rates| rates.died)),
            ],
            amount,
        ));
    }
    let mut row = same_scale(
        vec![
            of("Ready", "ready", &count(|point| point.ready)),
            of("Running", "running", &count(|point| point.leased)),
        ],
        amount,
    );
    let oldest = |point: &Point| Some(point.oldest.unwrap_or_default().as_secs_f64());
    row.extend(same_scale(vec![of("Oldest that waits", "running", &oldest)], time));
    rows.push(row);
    Some(Charts { begin: short(span), rows })
}

fn series(
    name: &'static str,
    class: &'static str,
    points: &[Point],
    value: &dyn Fn(&Point) -> Option<f64>,
) -> Series {
    let seconds =
        |at: SystemTime, since: SystemTime| at.duration_since(since).unwrap_or_default().as_secs_f64();
    let begin = points.first().map_or(SystemTime::UNIX_EPOCH, |first| first.at);
    let span = points.last().map_or(1.0, |last| seconds(last.at, begin)).max(0.001);
    let mut columns: Vec<(f64, f64, f64)> = Vec::new();
    let mut number = None;
    for point in points {
        let Some(value) = value(point) else { continue };
        let share = seconds(point.at, begin) / span;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 1")]
        #[allow(clippy::cast_precision_loss, reason = "a hundred")]
        let column = (share * COLUMNS as f64) as usize;
        match columns.last_mut().filter(|_| number == Some(column)) {
            Some((x, sum, count)) => (*x, *sum, *count) = (share, *sum + value, *count + 1.0),
            None => columns.push((share, value, 1.0)),
        }
        number = Some(column);
    }
    let values: Vec<_> = columns.iter().map(|(x, sum, count)| (*x, (sum / count).max(0.0))).collect();
    let now = values.last().map_or(0.0, |last| last.1);
    Series { name, class, values, now }
}

fn same_scale(all: Vec<Series>, text: fn(f64) -> String) -> Vec<Chart> {
    let most =
        all.iter().flat_map(|series| &series.values).fold(0.0, |most: f64, (_, value)| most.max(*value));
    let top = round_up(most);
    all.into_iter().map(|series| drawn(&series, top, text)).collect()
}

fn drawn(series: &Series, top: f64, text: fn(f64) -> String) -> Chart {
    let mut line = String::new();
    for (x, value) in &series.values {
        let _ = write!(line, "{:.1},{:.1} ", x * WIDTH, HEIGHT - value / top * HEIGHT);
    }
    let edge = |end: Option<&(f64, f64)>| end.map_or(0.0, |(x, _)| x * WIDTH);
    let (first, last) = (edge(series.values.first()), edge(series.values.last()));
    let area = format!("{first:.1},{HEIGHT} {line}{last:.1},{HEIGHT}");
    let most = series.values.iter().fold(0.0, |most: f64, (_, value)| most.max(*value));
    Chart {
        name: series.name,
        class: series.class,
        now: text(series.now),
        most: text(most),
        top: text(top),
        line,
        area,
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not less than this; at least 1.
pub(super) fn round_up(most: f64) -> f64 {
    if most <= 1.0 {
        return 1.0;
    }
    let ten = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * ten).find(|top| *top >= most).unwrap_or(most)
}

/// A count or a rate in few characters.
pub(super) fn amount(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e4 => (value / 1e3, " k"),
        value => (value, ""),
    };
    let is_whole = value >= 100.0 || (value - value.round()).abs() < 0.05;
    if is_whole { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

/// A number of seconds.
fn time(seconds: f64) -> String {
    if seconds < 1.0 { "0 s".to_owned() } else { short(Duration::from_secs_f64(seconds)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::float_cmp)]
    use super::*;

    fn points(all: impl IntoIterator<Item = (u64, Option<Rates>)>) -> Vec<Point> {
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let point =
            |(second, (ready, rates))| Point { at: at(second), ready, leased: 2, oldest: None, rates };
        (0..).zip(all).map(point).collect()
    }

    #[test]
    fn a_row_of_the_same_unit_has_the_same_scale_and_tells_the_latest() {
        let rates = |pushed| Some(Rates { pushed, succeeded: 3.0, died: 0.0 });
        let charts =
            charts(&points([(0, None), (40, rates(10.0)), (60, rates(150.0)), (30, rates(-4.0))])).unwrap();
        let row = |row: usize| -> Vec<_> {
            charts.rows[row].iter().map(|chart| (chart.now.as_str(), chart.top.as_str())).collect()
        };
        assert_eq!(row(0), [("0", "200"), ("3", "200"), ("0", "200")], "less than nothing is nothing");
        assert_eq!(row(1), [("30", "100"), ("2", "100"), ("0 s", "1 s")]);
        assert_eq!(charts.begin, "3 s");
        assert_eq!(charts.rows[1][0].line, "0.0,80.0 100.0,48.0 200.0,32.0 300.0,56.0 ");
    }

    #[test]
    fn without_ends_there_are_no_rates_and_without_history_nothing() {
        assert_eq!(charts(&points([(1, None); 4])).unwrap().rows.len(), 1);
        assert!(charts(&points([(1, None); 3])).is_none());
        assert!(charts(&[]).is_none());
    }

    #[test]
    fn many_points_are_drawn_as_few() {
        let charts = charts(&points((0..600).map(|ready| (ready, None)))).unwrap();
        let drawn = charts.rows[0][0].line.split_whitespace().count();
        assert!((90..=COLUMNS + 1).contains(&drawn), "{drawn}");
    }

    #[test]
    fn scales_end_at_round_numbers() {
        let all = [0.0, 0.3, 1.0, 1.1, 2.0, 4.0, 7.0, 10.0, 180.0, 9e5].map(round_up);
        assert_eq!(all, [1.0, 1.0, 1.0, 2.0, 2.0, 5.0, 10.0, 10.0, 200.0, 1e6]);
        let texts = [0.0, 0.25, 3.0, 99.5, 1234.0, 20_000.0, 2_500_000.0].map(amount);
        assert_eq!(texts, ["0", "0.2", "3", "99.5", "1234", "20 k", "2.5 M"]);
    }
}

//! How many tasks ended in the last hour, day or week, and how long they took: as charts, and as a table that
//! says the same.

use std::time::Duration;

use anyqueue::{EndState, Histogram};

use super::charts::{HEIGHT, WIDTH, amount, round_up};
use super::text::{moment, short};
use crate::app::App;
use crate::ended::Counted;
use crate::span::{Span, Step, moment_of};

/// The states, from the bottom of a column to its top, each with its class and name.
const STATES: [(EndState, &str, &str); 4] = [
    (EndState::Succeeded, "succeeded", "Succeeded"),
    (EndState::Failed, "failed", "Failed"),
    (EndState::TimedOut, "timed_out", "Timed out"),
    (EndState::Cancelled, "cancelled", "Cancelled"),
];
/// The share of its room that a column fills.
const FILLED: f64 = 0.8;
/// The height, in milliseconds, of times longer than the histogram can tell: a bit more than three days.
const ENDLESS_MILLIS: f64 = 274_877_906.944;

/// What a page shows of the ended tasks.
pub(crate) struct Ended {
    /// Which tasks they are, if the page is about others too.
    pub(crate) of: String,
    pub(crate) spans: Vec<SpanLink>,
    /// What is missing, and why.
    pub(crate) notes: Vec<String>,
    pub(crate) span: &'static str,
    pub(crate) step: &'static str,
    /// How long ago the charts begin.
    pub(crate) begin: String,
    /// Empty if no task ended.
    pub(crate) figures: Vec<Figure>,
    pub(crate) states: [&'static str; 4],
    /// The sum, then each step in which any task ended, the latest first.
    pub(crate) rows: Vec<Row>,
}

/// A link to another span of time.
pub(crate) struct SpanLink {
    pub(crate) name: &'static str,
    pub(crate) path: String,
    pub(crate) is_shown: bool,
}

/// A chart of columns.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) sum: String,
    /// A description for those who cannot see it.
    pub(crate) label: String,
    pub(crate) top: String,
    pub(crate) bars: Vec<Bar>,
    /// What each class stands for.
    pub(crate) legend: Vec<(&'static str, String)>,
}

/// A part of a column.
pub(crate) struct Bar {
    pub(crate) class: &'static str,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) width: String,
    pub(crate) height: String,
}

pub(crate) struct Row {
    pub(crate) at: String,
    pub(crate) counts: [u64; 4],
    /// Bounds of half and of most of the run times, then of the wait times.
    pub(crate) times: [String; 4],
}

/// Asks for the tasks that ended in these queues; `None` where no ends are kept.
pub(crate) async fn ended(
    app: &App,
    span: Option<&str>,
    names: &[&str],
    kind: Option<&str>,
    path: impl Fn(&str) -> String,
) -> Option<Ended> {
    if !app.queue.keeps_ends() || names.is_empty() {
        return None;
    }
    let span = Span::named(span);
    let mut shown = Ended::nothing(span);
    if !app.queue.capabilities().series {
        shown.notes.push("This backend does not count the ends of tasks.".to_owned());
        return Some(shown);
    }
    let counted = app.ended.over(span, names, kind).await;
    let link = |to: Span| SpanLink {
        name: to.name(),
        path: path(&format!("span={}#ended", to.name())),
        is_shown: to == span,
    };
    shown.spans = Span::ALL.into_iter().map(link).collect();
    shown.of = match kind {
        Some(kind) => format!("Of the kind “{kind}”."),
        None => String::new(),
    };
    shown.show(&counted, names.len());
    Some(shown)
}

impl Ended {
    fn nothing(span: Span) -> Self {
        let step = match span {
            Span::Hour => "5 minutes",
            Span::Day => "hour",
            Span::Week => "6 hours",
        };
        Self {
            of: String::new(),
            spans: Vec::new(),
            notes: Vec::new(),
            span: span.name(),
            step,
            begin: String::new(),
            figures: Vec::new(),
            states: STATES.map(|(_, _, name)| name),
            rows: Vec::new(),
        }
    }

    fn show(&mut self, counted: &Counted, queues: usize) {
        self.notes = notes(counted, queues);
        let (Some((first, _)), Some((last, _))) = (counted.steps.first(), counted.steps.last()) else {
            return;
        };
        let minutes = last - first + counted.span.step_minutes();
        self.begin = short(Duration::from_secs(minutes.saturating_mul(60)));
        let mut sum = Step::default();
        for (_, step) in &counted.steps {
            sum.merge(step);
        }
        if sum.tasks() == 0 {
            return;
        }
        let steps: Vec<&Step> = counted.steps.iter().map(|(_, step)| step).collect();
        let over = format!("in the last {}, by {}", self.span, self.step);
        let ran: Times = |step| &step.ran;
        let waited: Times = |step| &step.waited;
        self.figures = vec![
            tasks(&steps, &sum, &over),
            times("Run time", "They ran", ran, &steps, &sum, &over),
            times("Wait time", "They waited", waited, &steps, &sum, &over),
        ];
        self.rows.push(Row::of("All".to_owned(), &sum));
        let any = counted.steps.iter().rev().filter(|(_, step)| step.tasks() > 0);
        self.rows.extend(any.map(|(at, step)| Row::of(minute_text(*at), step)));
    }
}

/// The time at which a minute begins, to the minute.
fn minute_text(minute: u64) -> String {
    let text = moment(moment_of(minute));
    text.strip_suffix(":00").map_or_else(|| text.clone(), str::to_owned)
}

/// What the charts do not show.
fn notes(counted: &Counted, queues: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((name, why)) = counted.missing.first() {
        let others = match counted.missing.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let of = if queues > 1 { format!(" of {name}{others}") } else { String::new() };
        notes.push(format!("The ends{of} could not be counted now: {why}."));
    } else if !counted.is_whole {
        notes.push("Not all is counted yet: it goes on each time that the page is read.".to_owned());
    }
    notes
}

/// Columns from left to right: each has several parts, of a class, a lower and an upper end.
fn columns(steps: &[&Step], top: f64, parts: impl Fn(&Step) -> Vec<(&'static str, f64, f64)>) -> Vec<Bar> {
    #[allow(clippy::cast_precision_loss, reason = "some dozen columns")]
    let (room, place) = (WIDTH / steps.len() as f64, |number: usize| number as f64);
    let mut bars = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        for (class, from, to) in parts(step).into_iter().filter(|(_, from, to)| to > from) {
            bars.push(Bar {
                class,
                x: format!("{:.1}", (place(number) + (1.0 - FILLED) / 2.0) * room),
                y: format!("{:.1}", HEIGHT - to / top * HEIGHT),
                width: format!("{:.1}", room * FILLED),
                height: format!("{:.1}", (to - from) / top * HEIGHT),
            });
        }
    }
    bars
}

#[allow(clippy::cast_precision_loss, reason = "a chart is a few hundred pixels wide")]
fn tasks(steps: &[&Step], sum: &Step, over: &str) -> Figure {
    let most = steps.iter().map(|step| step.tasks()).max().unwrap_or(0);
    let top = round_up(most as f64);
    let stacked = |step: &Step| {
        let mut from = 0;
        let part = |(state, class, _): (EndState, &'static str, &str)| {
            let (begin, count) = (from, step.count(state));
            from += count;
            (class, begin as f64, (begin + count) as f64)
        };
        STATES.map(part).to_vec()
    };
    let legend = STATES.map(|(state, class, name)| (class, format!("{name} {}", sum.count(state)))).to_vec();
    let told: Vec<_> = legend.iter().map(|(_, text)| text.to_lowercase()).collect();
    Figure {
        name: "Ended",
        sum: amount(sum.tasks() as f64),
        label: format!("Ended {over}: {}; at most {most} in one step", told.join(", ")),
        top: amount(top),
        bars: columns(steps, top, stacked),
        legend,
    }
}

/// Which times: run times or wait times.
type Times = fn(&Step) -> &Histogram;

fn times(name: &'static str, they: &str, of: Times, steps: &[&Step], sum: &Step, over: &str) -> Figure {
    let most = steps.iter().map(|step| millis(of(step), 95)).fold(0.0, f64::max);
    let top = round_up(most);
    // The column of the half stands in front.
    let both = |step: &Step| vec![("most", 0.0, millis(of(step), 95)), ("half", 0.0, millis(of(step), 50))];
    let (half, nearly_all) = (below(of(sum), 50), below(of(sum), 95));
    Figure {
        name,
        sum: half.clone(),
        label: format!("{they} {over}: half of them {half}, 95 of 100 {nearly_all}"),
        top: short(Duration::from_secs_f64(top / 1000.0)),
        bars: columns(steps, top, both),
        legend: vec![("half", format!("Half: {half}")), ("most", format!("95 of 100: {nearly_all}"))],
    }
}

/// The bound below which this percentage of the times lies, in milliseconds; 0 if there are no times.
fn millis(times: &Histogram, percent: u8) -> f64 {
    let bound = times.below(percent).map(|bound| bound.as_secs_f64() * 1000.0);
    bound.unwrap_or(if times.count() == 0 { 0.0 } else { ENDLESS_MILLIS })
}

/// The same for people. It is a bound, so it is rounded up.
#[allow(clippy::cast_precision_loss, reason = "a bound is at most some days")]
fn below(times: &Histogram, percent: u8) -> String {
    let Some(bound) = times.below(percent) else {
        return if times.count() == 0 { "–".to_owned() } else { "over 3 d".to_owned() };
    };
    let micros = bound.as_micros() as f64;
    let units = [("d", 864e8), ("h", 36e8), ("min", 6e7), ("s", 1e6), ("ms", 1e3), ("µs", 1.0)];
    let (unit, length) = units.into_iter().find(|(_, length)| micros >= *length).unwrap_or(("µs", 1.0));
    let value = micros / length;
    let value = if value < 10.0 { (value * 10.0).ceil() / 10.0 } else { value.ceil() };
    format!("< {value} {unit}")
}

impl Row {
    fn of(at: String, step: &Step) -> Self {
        let times = [(&step.ran, 50), (&step.ran, 95), (&step.waited, 50), (&step.waited, 95)];
        Self {
            at,
            counts: STATES.map(|(state, ..)| step.count(state)),
            times: times.map(|(times, percent)| below(times, percent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_short_and_never_less_than_they_are() {
        let told = [0, 3, 10, 13, 14, 17, 20, 24, 26, 30, 32, 37, 38, 39].map(|bucket| {
            let mut times = Histogram::default();
            times.add(bucket, 1);
            below(&times, 50)
        });
        let wanted = [
            "< 1 µs",
            "< 8 µs",
            "< 1.1 ms",
            "< 8.2 ms",
            "< 17 ms",
            "< 132 ms",
            "< 1.1 s",
            "< 17 s",
            "< 1.2 min",
            "< 18 min",
            "< 1.2 h",
            "< 1.6 d",
            "< 3.2 d",
            "over 3 d",
        ];
        assert_eq!(told, wanted);
        assert_eq!(below(&Histogram::default(), 50), "–");
    }

    #[test]
    fn what_takes_longer_than_can_be_told_stands_above_all_else() {
        let mut times = Histogram::default();
        assert!(millis(&times, 95).abs() < f64::EPSILON);
        times.add(38, 1);
        let longest = millis(&times, 95);
        times.add(39, 99);
        assert!(millis(&times, 95) >= longest && longest > 0.0);
    }

    #[test]
    fn queues_that_cannot_be_asked_are_named_once_for_all() {
        let late = |name: &str| (name.to_owned(), "why".to_owned());
        let steps = vec![(600, Step::default()), (605, Step::default())];
        let mut counted = Counted { span: Span::Hour, steps, is_whole: true, missing: Vec::new() };
        assert_eq!(notes(&counted, 3), [""; 0]);
        counted.is_whole = false;
        let text = "Not all is counted yet: it goes on each time that the page is read.";
        assert_eq!(notes(&counted, 3), [text]);
        counted.missing = vec![late("a")];
        assert_eq!(notes(&counted, 1), ["The ends could not be counted now: why."]);
        assert_eq!(notes(&counted, 3), ["The ends of a could not be counted now: why."]);
        counted.missing.extend([late("b"), late("c")]);
        assert_eq!(notes(&counted, 3), ["The ends of a and 2 more could not be counted now: why."]);
    }
}

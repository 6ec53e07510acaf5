//! How everything stands.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::SystemTime;

use super::shell::{Shell, page as answer};
use super::text::short;
use crate::app::App;
use crate::queues::QueueInfo;
use crate::sampler::{Point, Sample};

/// The most things to look at that are listed.
const MAX_WARNINGS: usize = 10;
/// The room of the chart.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;
const EDGE: f64 = 6.0;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    shell: Shell,
    totals: Totals,
    workers: Option<usize>,
    warnings: Vec<Warning>,
    chart: Option<Chart>,
    partitions: Vec<QueueInfo>,
    more: bool,
    unlisted: Option<String>,
}

struct Totals {
    ready: u64,
    delayed: u64,
    leased: u64,
    dead: u64,
}

struct Warning {
    text: String,
    /// Where to go, and what to call that.
    link: Option<(String, &'static str)>,
}

struct Chart {
    minutes: String,
    ready: String,
    leased: String,
    most_ready: u64,
    most_leased: u64,
}

pub(crate) async fn page(State(app): State<Arc<App>>) -> Response {
    let sample = app.sampler.fresh().await;
    let mut warnings = warnings(&sample);
    if let Err(why) = app.healthy().await {
        warnings.insert(0, Warning { text: format!("The backend cannot serve: {why}"), link: None });
    }
    warnings.truncate(MAX_WARNINGS);
    answer(&Overview {
        shell: Shell::new(&app, "Overview", "Overview"),
        totals: Totals {
            ready: sample.total(|queue| queue.ready),
            delayed: sample.total(|queue| queue.delayed),
            leased: sample.total(|queue| queue.leased),
            dead: sample.total(|queue| queue.dead),
        },
        workers: sample.workers.as_ref().map(Vec::len),
        warnings,
        chart: chart(&app.sampler.points()),
        partitions: sample.partitions.clone(),
        more: sample.more,
        unlisted: sample.unlisted.clone(),
    })
}

fn warnings(sample: &Sample) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let served: Option<HashSet<&str>> = sample
        .workers
        .as_ref()
        .map(|all| all.iter().flat_map(|worker| worker.partitions.iter().map(String::as_str)).collect());
    for queue in &sample.partitions {
        let name = &queue.partition;
        let path = |what: &str| format!("/{what}{}", urlencode(name));
        let ready = queue.ready.unwrap_or(0);
        if let Some(dead) = queue.dead.filter(|dead| *dead > 0) {
            let text = format!("{dead} dead letters in {name}.");
            warnings.push(Warning { text, link: Some((path("dead?partition="), "Look at them")) });
        }
        if queue.paused == Some(true) && ready > 0 {
            let text = format!("{name} is paused, and {ready} messages wait.");
            warnings.push(Warning { text, link: Some((path("partitions/"), "Look at it")) });
        }
        // Without any registered worker others may serve it, whom the registry does not know.
        if served.as_ref().is_some_and(|served| !served.is_empty() && !served.contains(name.as_str()))
            && ready > 0
        {
            let text = format!("No registered worker serves {name}, and {ready} messages wait.");
            warnings.push(Warning { text, link: Some((path("partitions/"), "Look at it")) });
        }
    }
    warnings
}

fn urlencode(text: &str) -> String {
    use askama::filters::urlencode_strict;
    urlencode_strict(text).map(|encoded| encoded.to_string()).unwrap_or_default()
}

fn chart(points: &[Point]) -> Option<Chart> {
    let (first, last) = (points.first()?, points.last()?);
    let span = last.at.duration_since(first.at).ok().filter(|span| span.as_secs() >= 2)?;
    let most = |of: fn(&Point) -> u64| points.iter().map(of).max().unwrap_or(0);
    Some(Chart {
        minutes: short(span),
        ready: line(points, first.at, |point| point.ready),
        leased: line(points, first.at, |point| point.leased),
        most_ready: most(|point| point.ready),
        most_leased: most(|point| point.leased),
    })
}

/// The points of a line, scaled to its own greatest value.
#[allow(clippy::cast_precision_loss, reason = "a chart is a few hundred pixels wide")]
fn line(points: &[Point], begin: SystemTime, of: impl Fn(&Point) -> u64) -> String {
    let seconds = |at: SystemTime| at.duration_since(begin).unwrap_or_default().as_secs_f64();
    let span = points.last().map_or(1.0, |last| seconds(last.at)).max(0.001);
    let most = points.iter().map(&of).max().unwrap_or(0).max(1) as f64;
    let mut text = String::new();
    for point in points {
        let x = seconds(point.at) / span * WIDTH;
        let y = HEIGHT - EDGE - of(point) as f64 / most * (HEIGHT - 2.0 * EDGE);
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text
}

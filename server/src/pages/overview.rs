//! The overview: the state of all queues.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use std::collections::HashSet;

use super::charts::{Charts, charts};
use super::ended::{Ended, ended};
use super::shell::{Shell, page as answer};
use super::text::{many, short_or_dash};
use crate::access;
use crate::app::App;
use crate::queues::QueueInfo;
use crate::sampler::Sample;
use crate::wire::Query;

/// The most warnings that are listed.
const MAX_WARNINGS: usize = 10;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    shell: Shell,
    totals: Totals,
    workers: Option<usize>,
    warnings: Vec<Warning>,
    charts: Option<Charts>,
    ended: Option<Ended>,
    partitions: Vec<Row>,
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
    /// The target of the link, and its text.
    link: Option<(String, &'static str)>,
}

struct Row {
    p: QueueInfo,
    oldest: String,
}

/// Which span of time is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct Shown {
    #[serde(default)]
    span: Option<String>,
}

pub(crate) async fn page(State(app): State<Arc<App>>, Query(shown): Query<Shown>) -> Response {
    let sample = app.sample().await;
    let names: Vec<_> = sample.partitions.iter().map(|queue| queue.partition.as_str()).collect();
    let mut ended = ended(&app, shown.span.as_deref(), &names, None, |span| format!("/?{span}")).await;
    if let Some(ended) = ended.as_mut().filter(|_| sample.more) {
        ended.of = "Of the queues that are listed below.".into();
    }
    let mut warnings = warnings(&sample);
    if let Err(why) = app.healthy().await {
        warnings.insert(0, Warning { text: format!("The backend cannot serve: {why}"), link: None });
    }
    warnings.truncate(MAX_WARNINGS);
    answer(&Overview {
        shell: Shell::new(&app, "Overview", "Overview").timed(),
        totals: Totals {
            ready: sample.total(|queue| queue.ready),
            delayed: sample.total(|queue| queue.delayed),
            leased: sample.total(|queue| queue.leased),
            dead: sample.total(|queue| queue.dead),
        },
        workers: sample.workers.as_ref().map(Vec::len),
        warnings,
        // The points are those of all queues together.
        charts: if access::covers_all() { charts(&app.sampler.points()) } else { None },
        ended,
        partitions: rows(&sample),
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
        let waiting = many(ready, "message waits", "messages wait");
        if let Some(dead) = queue.dead.filter(|dead| *dead > 0) {
            let text = format!("{} in {name}.", many(dead, "dead letter", "dead letters"));
            warnings.push(Warning { text, link: Some((path("dead?partition="), "Look at them")) });
        }
        if queue.paused == Some(true) && ready > 0 {
            let text = format!("{name} is paused, and {waiting}.");
            warnings.push(Warning { text, link: Some((path("partitions/"), "Look at it")) });
        }
        // If no worker is registered, it may be served by workers that the registry does not know.
        if served.as_ref().is_some_and(|served| !served.is_empty() && !served.contains(name.as_str()))
            && ready > 0
        {
            let text = format!("No registered worker serves {name}, and {waiting}.");
            warnings.push(Warning { text, link: Some((path("partitions/"), "Look at it")) });
        }
    }
    warnings
}

fn rows(sample: &Sample) -> Vec<Row> {
    let oldest =
        |number: usize| short_or_dash(sample.readings.get(number).and_then(|reading| reading.oldest));
    let queues = sample.partitions.iter().enumerate();
    queues.map(|(number, queue)| Row { p: queue.clone(), oldest: oldest(number) }).collect()
}

fn urlencode(text: &str) -> String {
    use askama::filters::urlencode_strict;
    urlencode_strict(text).map(|encoded| encoded.to_string()).unwrap_or_default()
}

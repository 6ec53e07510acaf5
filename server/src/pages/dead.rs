//! Dead letters, grouped by reason.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use anyqueue::{DeadLetter, Page};
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::confirm::Confirm;
use super::shell::{Shell, failed, page as answer};
use super::text::{many, moment_or_dash};
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::reasons::without_numbers;
use crate::wire::{Query, partition};

/// The most dead letters that are examined.
const LOOKED_AT: usize = 2000;
const PAGE: usize = 100;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Which {
    #[serde(default)]
    partition: String,
    #[serde(default)]
    said: Option<String>,
}

#[derive(Template)]
#[template(path = "dead.html")]
struct DeadPage {
    shell: Shell,
    partition: String,
    names: Vec<String>,
    groups: Option<Result<Vec<Group>, String>>,
    cut: bool,
    looked_at: usize,
}

struct Group {
    reason: String,
    count: usize,
    last: String,
    last_at: Option<SystemTime>,
    id: String,
}

pub(crate) async fn page(State(app): State<Arc<App>>, Query(which): Query<Which>) -> Response {
    let names = app.sample().await.partitions.iter().map(|queue| queue.partition.clone()).collect();
    let (groups, cut, looked_at) = if which.partition.is_empty() {
        (None, false, 0)
    } else {
        match letters(&app, &which.partition).await {
            Ok((letters, cut)) => (Some(Ok(by_reason(&letters))), cut, letters.len()),
            Err(problem) => (Some(Err(problem.detail)), false, 0),
        }
    };
    let shell = Shell::new(&app, "Dead letters", "Dead letters").still().saying(which.said);
    answer(&DeadPage { shell, partition: which.partition, names, groups, cut, looked_at })
}

/// Returns the first dead letters, and whether there are more.
async fn letters(app: &App, name: &str) -> Answer<(Vec<DeadLetter>, bool)> {
    let dead = app.queue.dead_letters(partition(name)?)?;
    let mut all: Vec<DeadLetter> = Vec::new();
    while all.len() < LOOKED_AT {
        let after = all.last().map(|last| last.message.id());
        let page = dead.list(Page::of(PAGE).after(after)).await?;
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok((all, false));
        }
    }
    Ok((all, true))
}

fn by_reason(letters: &[DeadLetter]) -> Vec<Group> {
    let mut groups: HashMap<String, Group> = HashMap::new();
    for letter in letters {
        let reason = without_numbers(letter.reason.as_deref().unwrap_or("no reason"));
        let group = groups.entry(reason.clone()).or_insert_with(|| Group {
            reason,
            count: 0,
            last: String::new(),
            last_at: None,
            id: letter.message.id().to_string(),
        });
        group.count += 1;
        group.last_at = group.last_at.max(letter.died_at);
        group.last = moment_or_dash(group.last_at);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.reason.cmp(&other.reason)));
    groups
}

/// The action that is asked for, and the dead letters that it concerns.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    action: String,
    partition: String,
    #[serde(default)]
    reason: Option<String>,
}

/// Shows what would be done before anything is.
pub(crate) async fn confirm(State(app): State<Arc<App>>, Query(asked): Query<Asked>) -> Response {
    let counted = async {
        app.writable()?;
        let (letters, cut) = letters(&app, &asked.partition).await?;
        let matches = |letter: &&DeadLetter| {
            let reason = without_numbers(letter.reason.as_deref().unwrap_or("no reason"));
            asked.reason.as_ref().is_none_or(|wanted| *wanted == reason)
        };
        Ok::<_, Problem>((letters.iter().filter(matches).count(), cut))
    };
    let (count, cut) = match counted.await {
        Ok(counted) => counted,
        Err(problem) => return failed(&app, &problem),
    };
    let letters = many(count, "dead letter", "dead letters");
    let letters = if cut { format!("{letters} or more") } else { letters };
    let name = &asked.partition;
    let for_reason =
        asked.reason.as_ref().map_or_else(String::new, |reason| format!(" that died of “{reason}”"));
    let (title, verb, what, danger) = if asked.action == "purge" {
        (
            "Delete dead letters?",
            "Delete them",
            format!("{letters} of {name} would be deleted, for good."),
            true,
        )
    } else {
        (
            "Put dead letters back?",
            "Put them back",
            format!("{letters} of {name}{for_reason} would be put back and run again."),
            false,
        )
    };
    let mut fields = vec![("partition", name.clone())];
    fields.extend(asked.reason.clone().map(|reason| ("reason", reason)));
    let action = format!("/do/dead/{}", if danger { "purge" } else { "redrive" });
    let back = askama::filters::urlencode_strict(name).map(|name| format!("/dead?partition={name}"));
    answer(&Confirm {
        shell: Shell::new(&app, "Dead letters", title).still(),
        what,
        action,
        fields,
        verb,
        danger,
        none: count == 0,
        back: back.unwrap_or_default(),
    })
}

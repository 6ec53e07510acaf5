//! One queue.

use std::sync::Arc;

use anyqueue::Page;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::charts::{Charts, charts};
use super::ended::{Ended, ended};
use super::shell::{Shell, encoded, failed, page as answer};
use super::text::short;
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::queues::{QueueInfo, of};
use crate::wire::{Path, Query, partition};

/// The most messages that are shown.
const SHOWN: usize = 50;

/// The message about what was done on the previous page.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Said {
    #[serde(default)]
    pub(crate) said: Option<String>,
}

/// The same message, and which span of time is shown.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    pub(crate) said: Option<String>,
    #[serde(default)]
    pub(crate) span: Option<String>,
}

#[derive(Template)]
#[template(path = "partition.html")]
struct PartitionPage {
    shell: Shell,
    p: QueueInfo,
    charts: Option<Charts>,
    ended: Option<Ended>,
    messages: Result<Vec<Message>, String>,
}

struct Message {
    id: String,
    state: String,
    kind: String,
    priority: u8,
    age: String,
    deliveries: String,
}

pub(crate) async fn page(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    // A look at a queue counts as watching, so that its history goes on.
    app.sampler.fresh().await;
    let shown = async {
        let name = partition(&name)?;
        let p = of(&app.queue, &name).await?;
        Ok::<_, Problem>((p, messages(&app, &name).await))
    };
    match shown.await {
        Ok((p, messages)) => {
            let shell = Shell::new(&app, "Overview", p.partition.clone()).timed().saying(asked.said);
            let charts = charts(&app.sampler.points_of(&p.partition));
            let messages = messages.map_err(|problem| problem.detail);
            let path = |span: &str| format!("/partitions/{}?{span}", encoded(&p.partition));
            let ended = ended(&app, asked.span.as_deref(), &[p.partition.as_str()], None, path).await;
            answer(&PartitionPage { shell, p, charts, ended, messages })
        }
        Err(problem) => failed(&app, &problem),
    }
}

async fn messages(app: &App, name: &anyqueue::PartitionId) -> Answer<Vec<Message>> {
    let found = app.queue.browse(name, Page::of(SHOWN)).await?;
    let state = |state| match serde_json::to_value(state) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    };
    Ok(found
        .iter()
        .map(|found| Message {
            id: found.message.id().to_string(),
            state: state(found.state),
            kind: found.message.headers().get(anyqueue::header::TASK_KIND).cloned().unwrap_or_default(),
            priority: found.message.options().priority,
            age: short(found.age),
            deliveries: found.delivery_count.map_or_else(|| "–".to_owned(), |count| count.to_string()),
        })
        .collect())
}

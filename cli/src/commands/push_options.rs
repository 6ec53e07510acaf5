//! The options of `anyqueue push` for its messages.

use std::time::Duration;

use anyqueue::MessageData;
use clap::Args;

use crate::line::OnDuplicate;
use crate::session::pair;

/// Apply to every message of the command; not with `--ndjson`, where each message has its own.
#[derive(Args)]
#[group(id = "options", multiple = true, conflicts_with = "ndjson")]
pub(super) struct Options {
    /// Priority, higher is more urgent
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Delivers the message only after this long, such as 30s or 1h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    delay: Option<Duration>,
    /// Gives the message the highest priority after this long, if it still waits then
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    urgent_after: Option<Duration>,
    /// Time to live: expires the message after this long
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// Group: its members are delivered one at a time, in order
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Deduplication key: stores nothing if a message with this key is in the queue
    #[arg(long, value_name = "KEY")]
    dedup_key: Option<String>,
    /// What to do if a message with the key is in the queue: keep it, give it the new content, give it the
    /// new content if the new message would be due earlier, or store the new message behind it if a consumer
    /// holds it
    #[arg(long, value_name = "WHAT", requires = "dedup_key", value_enum)]
    on_duplicate: Option<OnDuplicate>,
    /// Adds a header; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    header: Vec<(String, String)>,
    /// The kind of task, by which a worker of the library chooses the handler
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// A name for the task
    #[arg(long, value_name = "NAME")]
    task_id: Option<String>,
    /// The session that the task belongs to
    #[arg(long, value_name = "NAME")]
    session_id: Option<String>,
    /// How often a worker may retry
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// How long a worker may take for one attempt
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_duration: Option<Duration>,
}

impl Options {
    pub(super) fn message(&self, payload: Vec<u8>) -> MessageData {
        let mut message = MessageData::from_bytes(payload);
        let mut options = message.options().clone();
        options.priority = self.priority.unwrap_or(0);
        options.delay = self.delay.map(anyqueue::When::In);
        options.urgent_after = self.urgent_after.map(anyqueue::When::In);
        options.expiry = self.ttl.map(anyqueue::When::In);
        options.group = self.group.as_deref().map(Into::into);
        options.dedup_key = self.dedup_key.as_deref().map(Into::into);
        options.on_duplicate = self.on_duplicate.unwrap_or_default().into();
        options.max_retries = self.max_retries;
        options.max_duration = self.max_duration;
        message = message.with_options(options);
        for (name, value) in &self.header {
            message = message.with_header(name, value);
        }
        if let Some(kind) = &self.kind {
            message = message.with_header(anyqueue_worker::header::KIND, kind);
        }
        if let Some(task_id) = self.task_id.as_deref() {
            message = message.with_task_id(task_id);
        }
        match self.session_id.as_deref() {
            Some(session_id) => message.with_session_id(session_id),
            None => message,
        }
    }
}

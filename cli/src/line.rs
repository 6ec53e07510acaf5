//! A message as a JSON object on one line: what `pull`, `peek` and `dead` write with `--json`, and `push --ndjson` reads.

use std::time::{Duration, SystemTime};

use anyqueue::{Headers, MessageData, MessageId, RESERVED_HEADER_PREFIX, TaskOptions, When};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The fields for pushing a message, followed by those that describe a message that was found; the latter are
/// ignored when a line is read.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// The payload in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    priority: u8,
    /// A duration, such as `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<String>,
    /// A point in time, RFC 3339 in UTC; instead of `delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<String>,
    /// A duration, such as `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    urgent_after: Option<String>,
    /// A duration, such as `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_duplicate: Option<OnDuplicate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<u32>,
    /// A duration, such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_duration: Option<String>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deliveries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tried: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) age_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) died_at: Option<String>,
}

/// What a push does with a deduplication key that is taken: [`anyqueue::OnDuplicate`] as people write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnDuplicate {
    #[default]
    Keep,
    Replace,
    Earlier,
    Behind,
}

impl From<OnDuplicate> for anyqueue::OnDuplicate {
    fn from(what: OnDuplicate) -> Self {
        match what {
            OnDuplicate::Keep => Self::Keep,
            OnDuplicate::Replace => Self::Replace,
            OnDuplicate::Earlier => Self::Earlier,
            OnDuplicate::Behind => Self::Behind,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl Line {
    /// Parses a line.
    pub(crate) fn read(line: &[u8]) -> Result<Self, String> {
        let is_object = line.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let explain = |error: &serde_json::Error| match error.classify() {
            _ if !is_object => "this is not a JSON object; to push lines as payloads, use --lines".to_owned(),
            serde_json::error::Category::Data => without_place(&error.to_string()),
            serde_json::error::Category::Eof => {
                "this is not JSON: the line ends before the object does (a message must be on one line)"
                    .to_owned()
            }
            _ => format!(
                "this is not JSON: {} in column {}",
                without_place(&error.to_string()),
                error.column()
            ),
        };
        serde_json::from_slice(line).map_err(|error| explain(&error))
    }

    /// The line for a message.
    pub(crate) fn of(message: &MessageData) -> Self {
        let options = message.options();
        let payload = std::str::from_utf8(message.payload()).ok().map(str::to_owned);
        let text = |when: Option<When>| match when? {
            When::In(duration) => Some(humantime::format_duration(duration).to_string()),
            When::At(_) => None, // no storage returns one
        };
        Self {
            id: Some(message.id().to_string()),
            payload_base64: payload.is_none().then(|| BASE64.encode(message.payload())),
            payload,
            headers: message.headers().clone(),
            task_id: message.task_id().map(str::to_owned),
            session_id: message.session_id().map(str::to_owned),
            priority: options.priority,
            delay: text(options.delay).filter(|delay| delay != "0s"),
            ttl: text(options.expiry),
            group: options.group.as_deref().map(str::to_owned),
            dedup_key: options.dedup_key.as_deref().map(str::to_owned),
            max_retries: options.max_retries,
            max_duration: options.max_duration.map(|d| humantime::format_duration(d).to_string()),
            ..Self::default()
        }
    }

    /// Adds how long ago the message was pushed, if the backend knows.
    pub(crate) fn aged(mut self, age: Duration) -> Self {
        self.age_ms = (!age.is_zero()).then(|| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// The message to push. Headers of anyqueue itself are left out: they describe an earlier life of the
    /// message.
    pub(crate) fn into_message(self) -> Result<MessageData, String> {
        let payload = match (self.payload, self.payload_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => {
                BASE64.decode(text).map_err(|error| format!("payload_base64 is not base64: {error}"))?
            }
            (None, None) => return Err("give payload or payload_base64".to_owned()),
            (Some(_), Some(_)) => return Err("give payload or payload_base64, not both".to_owned()),
        };
        let id = match self.id {
            Some(text) => {
                text.parse().map_err(|error: anyqueue::Error| format!("id: {}", error.message()))?
            }
            None => MessageId::new(),
        };
        let mut options = TaskOptions::default();
        options.priority = self.priority;
        options.delay = when(self.delay.as_deref(), self.not_before.as_deref())?;
        options.urgent_after = duration("urgent_after", self.urgent_after.as_deref())?.map(When::In);
        options.expiry = duration("ttl", self.ttl.as_deref())?.map(When::In);
        options.group = self.group.map(Into::into);
        options.dedup_key = self.dedup_key.map(Into::into);
        options.on_duplicate = self.on_duplicate.unwrap_or_default().into();
        options.max_retries = self.max_retries;
        options.max_duration = duration("max_duration", self.max_duration.as_deref())?;
        let mut headers = self.headers;
        headers.retain(|name, _| !name.starts_with(RESERVED_HEADER_PREFIX));
        let mut message = MessageData::with_id(id, payload).with_headers(headers).with_options(options);
        if let Some(task_id) = self.task_id {
            message = message.with_task_id(task_id);
        }
        if let Some(session_id) = self.session_id {
            message = message.with_session_id(session_id);
        }
        Ok(message)
    }
}

/// The message of serde, without "at line 1": it has seen only one line.
fn without_place(text: &str) -> String {
    let text = text.split(" at line ").next().unwrap_or(text);
    text.replace("expected u8", "expected a whole number up to 255")
        .replace("expected u32", "expected a whole number up to 4294967295")
}

fn when(delay: Option<&str>, not_before: Option<&str>) -> Result<Option<When>, String> {
    match (duration("delay", delay)?, not_before) {
        (Some(_), Some(_)) => Err("give delay or not_before, not both".to_owned()),
        (Some(delay), None) => Ok(Some(When::In(delay))),
        (None, Some(time)) => {
            let time: SystemTime =
                humantime::parse_rfc3339(time).map_err(|error| format!("not_before: {error}"))?;
            Ok(Some(When::At(time)))
        }
        (None, None) => Ok(None),
    }
}

fn duration(field: &str, text: Option<&str>) -> Result<Option<Duration>, String> {
    text.map(|text| humantime::parse_duration(text).map_err(|error| format!("{field}: {error}"))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<MessageData, String> {
        Line::read(text.as_bytes())?.into_message()
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        for payload in [b"text \"quoted\"\n".as_slice(), &[0xff, 0, 1], b""] {
            let message = MessageData::new(payload)
                .with_task_id("t")
                .with_session_id("s")
                .with_header("a", "b")
                .with_priority(3)
                .with_time_to_live(Duration::from_mins(90))
                .with_group("g")
                .with_dedup_key("k")
                .with_max_retries(2)
                .with_max_duration(Duration::from_secs(5));
            let text = serde_json::to_string(&Line::of(&message).aged(Duration::from_secs(9))).unwrap();
            assert_eq!(read(&text).unwrap(), message, "{text}");
        }
    }

    #[test]
    fn mistakes_are_reported_by_field() {
        for (text, word) in [
            ("{}", "payload"),
            (r#"{"payload":"a","payload_base64":"YQ=="}"#, "not both"),
            (r#"{"payload":"a","prio":3}"#, "prio"),
            (r#"{"payload":"a","delay":"soon"}"#, "delay"),
            (r#"{"payload":"a","delay":"1s","not_before":"2030-01-01T00:00:00Z"}"#, "not both"),
            (r#"{"payload":"a","id":"7"}"#, "id"),
            (r#"{"payload_base64":"?"}"#, "payload_base64"),
            ("nonsense", "--lines"),
            ("[1]", "--lines"),
            (r#"{"payload":"a""#, "ends before"),
            (r#"{"payload":"a",}"#, "column 16"),
            (r#"{"payload":"a","priority":"high"}"#, "up to 255"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn headers_of_an_earlier_life_are_left_out() {
        let text = r#"{"payload":"a","headers":{"anyqueue-dead-reason":"x","mine":"y"}}"#;
        assert_eq!(read(text).unwrap().headers().keys().collect::<Vec<_>>(), ["mine"]);
    }

    proptest::proptest! {
        /// Any line is a message or a mistake.
        #[test]
        fn any_line_is_read_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = Line::read(&bytes).and_then(Line::into_message);
        }

        #[test]
        fn any_value_of_a_field_is_read_or_refused(
            field in "(id|payload|payload_base64|priority|delay|not_before|ttl|max_retries|max_duration|headers|group|age_ms|other)",
            value in proptest::prop_oneof!["-?[0-9]{1,30}", "\"[ -~]{0,20}\"", "null", "\\[\\]", "\\{\"a\":\"[0-9]{0,3}\"\\}", "1e99"],
        ) {
            if let Ok(message) = read(&format!("{{\"payload\":\"x\",\"{field}\":{value}}}")) {
                let text = serde_json::to_string(&Line::of(&message)).unwrap();
                let again = read(&text).unwrap();
                proptest::prop_assert_eq!(again.payload(), message.payload());
            }
        }
    }
}

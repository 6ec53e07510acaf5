//! Requests to the server, each with a deadline.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyqueue::{Error, ErrorKind, RetryClass};
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message,
    MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry,
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::clock::ServerClock;
use crate::config::Config;
use crate::entries::{BATCH, ChangeVisibility, Delete, Entries, Outgoing};
use crate::error::{ERRORS, Refused, TIMED_OUT, classify, classify_entry, unexpected_reply};
use crate::listener::Listener;

/// The client of this handle.
#[derive(Debug)]
pub(crate) struct Server {
    client: Client,
    call_timeout: Duration,
    pub(crate) clock: Arc<ServerClock>,
    requests: Arc<AtomicU64>,
    found_nothing: AtomicU64,
}

/// Counts of a handle's requests. The service bills each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// The number of requests that were answered, including those in the next field.
    pub answered: u64,
    /// The number of requests that found nothing: no message at a level, or no queue for it.
    pub found_nothing: u64,
}

impl Server {
    /// Builds the client. Sends no request.
    pub(crate) async fn new(config: &Config) -> Self {
        let shared = match &config.sdk {
            Some(sdk) => sdk.clone(),
            None => load(config).await,
        };
        let (clock, requests) =
            (Arc::new(ServerClock::new(config.clock.clone())), Arc::<AtomicU64>::default());
        let listener = Listener { clock: clock.clone(), requests: requests.clone() };
        // Core repeats calls that are safe to repeat, and here every call has a deadline.
        let sdk = aws_sdk_sqs::config::Builder::from(&shared)
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .interceptor(listener)
            .build();
        Self {
            client: Client::from_conf(sdk),
            call_timeout: config.call_timeout,
            clock,
            requests,
            found_nothing: AtomicU64::new(0),
        }
    }

    /// Returns the counts of the requests so far.
    pub(crate) fn requests(&self) -> Requests {
        let found_nothing = self.found_nothing.load(Ordering::Relaxed);
        Requests { answered: self.requests.load(Ordering::Relaxed), found_nothing }
    }

    async fn call<T, E>(
        &self,
        longest: Duration,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
    ) -> Result<T, Refused>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let Ok(answer) = tokio::time::timeout(longest, request).await else {
            return Err(ERRORS
                .error(ErrorKind::TimedOut, TIMED_OUT)
                .with_retry(RetryClass::MayDuplicate)
                .into());
        };
        answer.map_err(|error| classify(&error))
    }

    /// Returns the queue's URL, if the queue exists.
    pub(crate) async fn url(&self, name: &str) -> anyqueue::Result<Option<String>> {
        match self.call(self.call_timeout, self.client.get_queue_url().queue_name(name).send()).await {
            Ok(answer) => Ok(Some(answer.queue_url.ok_or_else(|| unexpected_reply("a queue's URL"))?)),
            Err(Refused::NoQueue) => {
                self.found_nothing.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
            Err(refused) => Err(refused.into_error()),
        }
    }

    /// Creates a queue, or finds the one with the same settings. Returns `None` if there is one with other
    /// settings.
    pub(crate) async fn create(
        &self,
        name: &str,
        settings: &[(QueueAttributeName, String)],
    ) -> anyqueue::Result<Option<String>> {
        let attributes = settings.iter().cloned().collect();
        let request = self.client.create_queue().queue_name(name).set_attributes(Some(attributes));
        let answer = tokio::time::timeout(self.call_timeout, request.send()).await;
        match answer {
            Ok(Err(SdkError::ServiceError(service))) if service.err().is_queue_name_exists() => Ok(None),
            Ok(Ok(answer)) => Ok(Some(answer.queue_url.ok_or_else(|| unexpected_reply("a queue's URL"))?)),
            Ok(Err(error)) => Err(classify(&error).into_error().repeatable()),
            // Creating it twice is harmless.
            Err(_) => Err(ERRORS.error(ErrorKind::TimedOut, TIMED_OUT).with_retry(RetryClass::Safe)),
        }
    }

    /// Returns attributes of a queue.
    pub(crate) async fn attributes(
        &self,
        url: &str,
        names: &[QueueAttributeName],
    ) -> Result<Vec<Option<String>>, Refused> {
        let request =
            self.client.get_queue_attributes().queue_url(url).set_attribute_names(Some(names.to_vec()));
        let known = self.call(self.call_timeout, request.send()).await?.attributes.unwrap_or_default();
        Ok(names.iter().map(|name| known.get(name).cloned()).collect())
    }

    /// Starts a task of the server that moves all messages of a dead-letter queue to another queue.
    pub(crate) async fn start_move(&self, from_arn: &str, to_arn: &str) -> Result<(), Refused> {
        let request = self.client.start_message_move_task().source_arn(from_arn).destination_arn(to_arn);
        self.call(self.call_timeout, request.send()).await.map(drop)
    }

    /// Receives up to `max` messages, at most ten.
    pub(crate) async fn receive(
        &self,
        url: &str,
        max: usize,
        wait_secs: u64,
        visible_after_secs: u64,
    ) -> Result<Vec<Message>, Refused> {
        let request = self
            .client
            .receive_message()
            .queue_url(url)
            .max_number_of_messages(seconds(max.min(BATCH) as u64))
            .wait_time_seconds(seconds(wait_secs))
            .visibility_timeout(seconds(visible_after_secs))
            .message_system_attribute_names(MessageSystemAttributeName::All);
        let longest = self.call_timeout + Duration::from_secs(wait_secs);
        let messages = self.call(longest, request.send()).await?.messages.unwrap_or_default();
        if messages.is_empty() {
            self.found_nothing.fetch_add(1, Ordering::Relaxed);
        }
        Ok(messages)
    }

    /// Sends up to ten messages.
    pub(crate) async fn send(&self, url: &str, messages: &[Outgoing]) -> Entries {
        let build = |(index, message): (usize, &Outgoing)| {
            let entry =
                SendMessageBatchRequestEntry::builder().id(index.to_string()).message_body(&message.body);
            match &message.fifo_ids {
                None => entry.delay_seconds(message.delay_secs),
                Some(of) => entry.message_group_id(&of.group).message_deduplication_id(&of.dedup),
            }
            .build()
        };
        let Ok(entries) = messages.iter().enumerate().map(build).collect::<Result<Vec<_>, _>>() else {
            return all_refused(messages.len(), &unbuildable());
        };
        let request = self.client.send_message_batch().queue_url(url).set_entries(Some(entries));
        match self.call(self.call_timeout, request.send()).await {
            Ok(answer) => {
                by_entry(messages.len(), answer.successful.into_iter().map(|done| done.id), answer.failed)
            }
            Err(refused) => all_refused(messages.len(), &refused),
        }
    }

    /// Deletes up to ten messages by their receipt handles.
    pub(crate) async fn delete(&self, url: &str, entries: &[Delete]) -> Entries {
        let count = entries.len();
        let build = |(index, Delete(receipt_handle)): (usize, &Delete)| {
            DeleteMessageBatchRequestEntry::builder()
                .id(index.to_string())
                .receipt_handle(&**receipt_handle)
                .build()
        };
        let Ok(entries) = entries.iter().enumerate().map(build).collect::<Result<Vec<_>, _>>() else {
            return all_refused(count, &unbuildable());
        };
        let request = self.client.delete_message_batch().queue_url(url).set_entries(Some(entries));
        match self.call(self.call_timeout, request.send()).await {
            Ok(answer) => by_entry(count, answer.successful.into_iter().map(|done| done.id), answer.failed),
            Err(refused) => all_refused(count, &refused),
        }
    }

    /// Changes the visibility timeouts of up to ten messages.
    pub(crate) async fn change_visibility(&self, url: &str, entries: &[ChangeVisibility]) -> Entries {
        let count = entries.len();
        let build = |(index, ChangeVisibility(receipt_handle, secs)): (usize, &ChangeVisibility)| {
            ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(index.to_string())
                .receipt_handle(&**receipt_handle)
                .visibility_timeout(seconds(*secs))
                .build()
        };
        let Ok(entries) = entries.iter().enumerate().map(build).collect::<Result<Vec<_>, _>>() else {
            return all_refused(count, &unbuildable());
        };
        let request = self.client.change_message_visibility_batch().queue_url(url).set_entries(Some(entries));
        match self.call(self.call_timeout, request.send()).await {
            Ok(answer) => by_entry(count, answer.successful.into_iter().map(|done| done.id), answer.failed),
            Err(refused) => all_refused(count, &refused),
        }
    }
}

fn seconds(secs: u64) -> i32 {
    i32::try_from(secs).unwrap_or(i32::MAX)
}

fn unbuildable() -> Refused {
    Error::new(ErrorKind::Internal, "an entry of a batch could not be built").into()
}

fn all_refused(entries: usize, refused: &Refused) -> Entries {
    (0..entries).map(|_| Err(refused.clone())).collect()
}

/// Assigns the answers of a batch to its entries. The server should answer all of them, but that is checked.
fn by_entry(
    entries: usize,
    done: impl Iterator<Item = String>,
    failed: Vec<BatchResultErrorEntry>,
) -> Entries {
    let unanswered = || {
        let text = "the server did not answer each entry of a batch: it is not known which were done";
        Refused::Failed(ERRORS.error(ErrorKind::Unavailable, text).with_retry(RetryClass::MayDuplicate))
    };
    let mut answers: Entries = (0..entries).map(|_| Err(unanswered())).collect();
    let mut set = |id: &str, answer| {
        if let Some(slot) = id.parse().ok().and_then(|index: usize| answers.get_mut(index)) {
            *slot = answer;
        }
    };
    for id in done {
        set(&id, Ok(()));
    }
    for refusal in failed {
        let text = refusal.message.as_deref().unwrap_or_default();
        set(&refusal.id, Err(classify_entry(&refusal.code, text, refusal.sender_fault)));
    }
    answers
}

/// Loads the configuration from the standard chain of environment, profiles and roles.
async fn load(config: &Config) -> SdkConfig {
    let http = aws_smithy_http_client::Builder::new();
    let is_plain = config.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let http = if is_plain {
        http.build_http()
    } else {
        http.tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
    };
    let timeouts = TimeoutConfig::builder().connect_timeout(config.connect_timeout).build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(config.region.clone()))
        .http_client(http)
        .timeout_config(timeouts);
    if let Some(endpoint) = &config.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some((key, secret)) = &config.credentials {
        loader = loader.credentials_provider(Credentials::new(key, secret, None, None, "anyqueue"));
    }
    loader.load().await
}

//! An HTTP layer between the SDK and the server that sees each request, and answers in the server's place as it is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};

/// What is done to a request.
#[derive(Clone, Debug)]
pub(crate) enum Trick {
    /// It is answered with this error, and the server never sees it.
    Refuse(u16, &'static str),
    /// The entry at this position is answered with this error, and the server sees the others only.
    FailEntry(usize, Failure),
    /// It is answered with this, and the server never sees it.
    Answer(&'static str),
    /// The body of the entry at this position is stored so changed.
    Spoil(usize, fn(&str) -> String),
    /// The server does it, and the answer is lost.
    LoseAnswer,
    /// The server is asked so much later.
    DelayRequest(Duration),
    /// The server does it, and the answer comes so much later.
    DelayAnswer(Duration),
    /// Entries are sent with this field set to this value.
    Set(&'static str, i64),
    /// What the answer brings was sent, and first received, so many seconds earlier.
    Age(u64),
    /// What the answer brings was sent so many seconds earlier, and first received when it was.
    SentEarlier(u64),
}

/// An entry of a batch that was not done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) code: &'static str,
    pub(crate) text: &'static str,
    pub(crate) sender_fault: bool,
}

/// A request as it was sent, and the number of messages that its answer brought.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) action: String,
    pub(crate) body: Value,
    pub(crate) brought: usize,
}

/// The layer. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Wire(Arc<State>);

#[derive(Debug)]
struct State {
    client: SharedHttpClient,
    tricks: Mutex<VecDeque<(String, Trick)>>,
    late: Mutex<Duration>,
    seen: Mutex<Vec<Seen>>,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let client = aws_smithy_http_client::Builder::new().build_http();
        Self(Arc::new(State {
            client,
            tricks: Mutex::default(),
            late: Mutex::default(),
            seen: Mutex::default(),
        }))
    }

    /// Plays this trick on the next request of this action that none is played on before.
    pub(crate) fn play(&self, action: &str, trick: Trick) {
        self.0.tricks.lock().unwrap().push_back((action.to_owned(), trick));
    }

    /// From now on every answer comes so much later.
    pub(crate) fn answer_later(&self, late: Duration) {
        *self.0.late.lock().unwrap() = late;
    }

    /// Whether all tricks have been played.
    pub(crate) fn is_done(&self) -> bool {
        self.0.tricks.lock().unwrap().is_empty()
    }

    /// All requests of this action so far.
    pub(crate) fn seen(&self, action: &str) -> Vec<Seen> {
        self.0.seen.lock().unwrap().iter().filter(|seen| seen.action == action).cloned().collect()
    }

    /// All requests so far.
    pub(crate) fn all(&self) -> Vec<Seen> {
        self.0.seen.lock().unwrap().clone()
    }

    fn take(&self, action: &str) -> Option<Trick> {
        let mut tricks = self.0.tricks.lock().unwrap();
        let position = tricks.iter().position(|(wanted, _)| wanted == action)?;
        tricks.remove(position).map(|(_, trick)| trick)
    }

    async fn pass(
        self,
        connector: SharedHttpConnector,
        request: HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let action = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body: Value =
            serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        let trick = self.take(&action);
        let late = *self.0.late.lock().unwrap();
        tokio::time::sleep(late).await;
        if let Some(Trick::DelayRequest(late)) = trick {
            tokio::time::sleep(late).await;
        }
        if let Some(Trick::Answer(answer)) = trick {
            self.saw(action, body, 0);
            return Ok(HttpResponse::new(200.try_into().unwrap(), SdkBody::from(answer)));
        }
        if let Some(Trick::Refuse(status, code)) = trick {
            self.saw(action, body, 0);
            return Ok(response(status, &json!({ "__type": code, "message": "as the test says" })));
        }
        let (sent, failed) = altered(&body, trick.as_ref());
        let entries = sent.get("Entries").and_then(Value::as_array);
        let answer = if entries.is_some_and(Vec::is_empty) {
            json!({})
        } else {
            let mut request = request;
            let bytes = sent.to_string();
            request.headers_mut().insert("content-length", bytes.len().to_string());
            *request.body_mut() = SdkBody::from(bytes);
            let response = connector.call(request).await?;
            let status = response.status().as_u16();
            let bytes = collect(response).await;
            let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            if status != 200 {
                self.saw(action, body, 0);
                return Ok(self::response(status, &answer));
            }
            answer
        };
        let answer = match trick {
            Some(Trick::Age(secs)) => {
                aged(answer, secs, &["SentTimestamp", "ApproximateFirstReceiveTimestamp"])
            }
            Some(Trick::SentEarlier(secs)) => aged(answer, secs, &["SentTimestamp"]),
            _ => answer,
        };
        let brought = answer.get("Messages").and_then(Value::as_array).map_or(0, Vec::len);
        self.saw(action, body, brought);
        match trick {
            Some(Trick::DelayAnswer(late)) => {
                tokio::time::sleep(late).await;
                Ok(response(200, &answer))
            }
            Some(Trick::LoseAnswer) => Err(ConnectorError::io("as the test says".into())),
            _ => Ok(response(200, &with_failed(answer, failed))),
        }
    }

    fn saw(&self, action: String, body: Value, brought: usize) {
        self.0.seen.lock().unwrap().push(Seen { action, body, brought });
    }
}

/// The request as the server sees it, and the entries that it does not see, as failed.
fn altered(body: &Value, trick: Option<&Trick>) -> (Value, Vec<Value>) {
    let mut sent = body.clone();
    let mut failed = Vec::new();
    let Some(entries) = sent.get_mut("Entries").and_then(Value::as_array_mut) else { return (sent, failed) };
    match trick {
        Some(Trick::FailEntry(position, failure)) if *position < entries.len() => {
            let entry = entries.remove(*position);
            let Failure { code, text, sender_fault } = failure;
            failed.push(
                json!({ "Id": entry["Id"], "Code": code, "Message": text, "SenderFault": sender_fault }),
            );
        }
        Some(Trick::Spoil(position, change)) => {
            let body = change(entries[*position]["MessageBody"].as_str().unwrap());
            entries[*position]["MessageBody"] = body.into();
        }
        Some(Trick::Set(field, value)) => {
            for entry in entries {
                entry[*field] = (*value).into();
            }
        }
        _ => {}
    }
    (sent, failed)
}

fn aged(mut answer: Value, secs: u64, names: &[&str]) -> Value {
    for message in answer.get_mut("Messages").and_then(Value::as_array_mut).into_iter().flatten() {
        for &name in names {
            let millis: u64 = message["Attributes"][name].as_str().unwrap().parse().unwrap();
            message["Attributes"][name] = (millis - 1000 * secs).to_string().into();
        }
    }
    answer
}

fn with_failed(mut answer: Value, more: Vec<Value>) -> Value {
    if !more.is_empty() {
        let mut failed = answer.get("Failed").and_then(Value::as_array).cloned().unwrap_or_default();
        failed.extend(more);
        answer["Failed"] = failed.into();
        if answer.get("Successful").is_none() {
            answer["Successful"] = json!([]);
        }
    }
    answer
}

fn response(status: u16, body: &Value) -> HttpResponse {
    HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body.to_string()))
}

async fn collect(response: HttpResponse) -> Vec<u8> {
    let stream = aws_smithy_types::byte_stream::ByteStream::new(response.into_body());
    stream.collect().await.unwrap().into_bytes().to_vec()
}

#[derive(Debug)]
struct Layer(Wire, SharedHttpConnector);

impl HttpConnector for Layer {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.0.clone().pass(self.1.clone(), request))
    }
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(Layer(self.clone(), self.0.client.http_connector(settings, components)))
    }
}

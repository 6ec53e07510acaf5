//! A client of the service that keeps its connection, as one written by hand would.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::client::Result;

/// Longer than any wait of these programs.
const PATIENCE: Duration = Duration::from_mins(1);

/// One connection.
pub(super) struct Http {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Http {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its end is seen by the next request.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self { sender, host: address.to_string() })
    }

    /// Posts, and returns the answer of a success.
    pub(super) async fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?;
        let answer = async {
            self.sender.ready().await?;
            let answer = self.sender.send_request(request).await?;
            let status = answer.status();
            hyper::Result::Ok((status, answer.into_body().collect().await?.to_bytes()))
        };
        let (status, body) = tokio::time::timeout(PATIENCE, answer).await??;
        if !status.is_success() {
            return Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(serde_json::from_slice(&body)?)
    }
}

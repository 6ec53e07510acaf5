//! A client of the service that keeps its connection, as a hand-written one would.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::request::Builder;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::client::Result;

/// Longer than any wait of these programs.
const PATIENCE: Duration = Duration::from_mins(1);

/// One connection.
pub(crate) struct Http {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Http {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The next request notices if the connection ends.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self { sender, host: address.to_string() })
    }

    /// Posts, and returns the answer if it is a success.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        self.exchange(path, request.body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?).await
    }

    /// Gets, and returns the answer if it is a success.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Value> {
        let request = self.request(Method::GET, path).body(Full::new(Bytes::new()))?;
        self.exchange(path, request).await
    }

    /// Requests a stream of lines, and passes on each piece of it.
    pub(crate) async fn lines(&mut self, path: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
        let request = self.request(Method::GET, path).header("accept", "application/x-ndjson");
        self.sender.ready().await?;
        let mut answer = self.sender.send_request(request.body(Full::new(Bytes::new()))?).await?.into_body();
        while let Some(frame) = tokio::time::timeout(PATIENCE, answer.frame()).await? {
            if let Some(some) = frame?.data_ref() {
                each(some);
            }
        }
        Ok(())
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        Request::builder().method(method).uri(path).header("host", &self.host)
    }

    async fn exchange(&mut self, path: &str, request: Request<Full<Bytes>>) -> Result<Value> {
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

//! A connection whose peer has to begin.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What a connection of HTTP/2 begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Fails if the peer does not show within some time which version of HTTP it speaks. From then on, the
/// deadlines of that version hold. Without it, a peer that connects and sends nothing would keep its place
/// forever.
pub(crate) struct FirstBytes<S> {
    stream: S,
    deadline: Duration,
    /// How much of the preface has been read; `None` once the version is known.
    read: Option<usize>,
    /// Runs from the first time that there was nothing to read.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> FirstBytes<S> {
    pub(crate) fn new(stream: S, deadline: Duration) -> Self {
        Self { stream, deadline, read: Some(0), waiting: None }
    }

    /// Takes note of bytes that were read. None at all are the end of the connection.
    fn note(&mut self, bytes: &[u8]) {
        let rest = self.read.and_then(|read| PREFACE.get(read..)).unwrap_or_default();
        let is_open = !bytes.is_empty() && bytes.len() < rest.len() && rest.starts_with(bytes);
        self.read = self.read.filter(|_| is_open).map(|read| read + bytes.len());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.read.is_none() {
            return polled;
        }
        if polled.is_ready() {
            self.note(buffer.filled().get(before..).unwrap_or_default());
            if self.read.is_none() {
                self.waiting = None;
            }
            return polled;
        }
        let deadline = self.deadline;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(deadline)));
        waiting.as_mut().poll(context).map(|()| {
            let text = format!("the client has made no request for {} s", deadline.as_secs_f64());
            Err(Error::new(ErrorKind::TimedOut, text))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

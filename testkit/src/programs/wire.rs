//! As much of each server's protocol as it takes to ask whether the server is ready.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Asks a server whether it is ready: sends the request on a new connection and reads as many bytes as
/// `expected` has, which must be the same. It waits for them without a limit of its own:
/// [`Program::ready`](crate::Program::ready) is given five seconds.
///
/// # Errors
/// If there is no connection, if the connection ends before the answer, or if the answer is different.
pub async fn expect(addr: SocketAddr, request: &[u8], expected: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(request).await?;
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).await?;
    if answer == expected {
        Ok(())
    } else {
        Err(io::Error::other(format!("it answered {:?}", String::from_utf8_lossy(&answer))))
    }
}

/// Sends a command without spaces in its words to Redis, and returns the text or number of its reply.
pub(crate) async fn redis(addr: SocketAddr, command: &str) -> io::Result<String> {
    let mut stream = BufReader::new(TcpStream::connect(addr).await?);
    stream.write_all(format!("{command}\r\n").as_bytes()).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("+" | ":", text)) => Ok(text.to_owned()),
        Some(("$", length)) => {
            let mut text = vec![0; length.parse().map_err(io::Error::other)?];
            stream.read_exact(&mut text).await?;
            String::from_utf8(text).map_err(io::Error::other)
        }
        _ => Err(io::Error::other(format!("it answered {line:?}"))),
    }
}

/// Logs in as the superuser, in `PostgreSQL`'s protocol, and waits until it takes queries.
pub(super) async fn postgres_ready(addr: SocketAddr) -> io::Result<()> {
    // Length (41), protocol version, settings.
    const LOGIN: &[u8] = b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    const GOODBYE: &[u8] = b"X\0\0\0\x04";
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(LOGIN).await?;
    loop {
        let kind = stream.read_u8().await?;
        // The length counts itself.
        let length = u64::from(stream.read_u32().await?.saturating_sub(4));
        let mut body = Vec::new();
        (&mut stream).take(length).read_to_end(&mut body).await?;
        match kind {
            b'E' => return Err(io::Error::other(String::from_utf8_lossy(&body).replace('\0', " "))),
            b'Z' => return stream.write_all(GOODBYE).await,
            // What it sends in between: that it trusts us, and its settings.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_serves_that_answers_what_is_expected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            for answer in [&b"PONG and more"[..], b"BUSY", b"PO"] {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut request = [0; 4];
                client.read_exact(&mut request).await.unwrap();
                assert_eq!(&request, b"PING");
                client.write_all(answer).await.unwrap();
            }
        });
        expect(addr, b"PING", b"PONG").await.unwrap();
        let other = expect(addr, b"PING", b"PONG").await.unwrap_err();
        assert!(other.to_string().contains("BUSY"), "{other}");
        let short = expect(addr, b"PING", b"PONG").await.unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        server.await.unwrap();
        expect(addr, b"PING", b"PONG").await.unwrap_err();
    }
}

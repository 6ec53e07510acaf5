//! What the tests of all servers need.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyqueue_testkit::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// More than anything here takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
/// How long is waited to see that nothing comes.
pub(crate) const SILENCE: Duration = Duration::from_millis(150);

/// A connection that speaks in bytes.
pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = timeout(LIMIT, TcpStream::connect(addr)).await.unwrap().unwrap();
        Self { stream }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads until this has come, and returns all that came.
    pub(crate) async fn read_until(&mut self, wanted: &[u8]) -> Vec<u8> {
        let mut seen = Vec::new();
        let found = timeout(LIMIT, async {
            while !seen.windows(wanted.len()).any(|window| window == wanted) {
                seen.push(self.stream.read_u8().await?);
            }
            io::Result::Ok(())
        });
        match found.await {
            Ok(Ok(())) => seen,
            other => {
                panic!("{other:?} after {:?} without {wanted:?}", String::from_utf8_lossy(&seen));
            }
        }
    }

    /// The first line of what comes back.
    pub(crate) async fn answer(&mut self, request: &[u8]) -> String {
        self.send(request).await;
        String::from_utf8_lossy(&self.read_until(b"\r\n").await).into_owned()
    }

    pub(crate) async fn ask(&mut self, request: &[u8], answer: &[u8]) {
        self.send(request).await;
        self.read_until(answer).await;
    }

    /// Nothing comes, also no end.
    pub(crate) async fn hears_nothing(&mut self) {
        let heard = timeout(SILENCE, self.stream.read_u8()).await;
        assert!(heard.is_err(), "{heard:?}");
    }

    /// The other side ends the connection, in whatever way.
    pub(crate) async fn ends(&mut self) {
        let mut rest = Vec::new();
        let ended = timeout(LIMIT, self.stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection goes on");
    }
}

pub(crate) async fn is_refused(addr: SocketAddr) {
    let refused = TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

/// The folder of the server's data.
pub(crate) fn folder(server: &Server) -> std::path::PathBuf {
    server.log().parent().map(Path::to_path_buf).unwrap()
}

pub(crate) async fn eventually(mut met: impl FnMut() -> bool) {
    let wait = async {
        while !met() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, wait).await.unwrap();
}

//! Each fault of the proxy, in front of a server that echoes.

// Clippy knows tests by their attribute, and not the functions that they share.
#![allow(clippy::unwrap_used)]

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyqueue_testkit::{Direction, Fault, Proxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

/// More than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// How long is waited to see that nothing comes.
const SILENCE: Duration = Duration::from_millis(100);

/// Sends back what comes, and closes when the client does.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    addr
}

async fn proxy() -> Proxy {
    Proxy::start(echo().await).unwrap()
}

async fn connect(proxy: &Proxy) -> TcpStream {
    soon(TcpStream::connect(proxy.addr())).await.unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.unwrap()
}

async fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

async fn round_trip(stream: &mut TcpStream) {
    stream.write_all(b"ping").await.unwrap();
    assert_eq!(read(stream, 4).await, b"ping");
}

/// What comes until the stream's end, or how it breaks.
async fn rest(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    soon(stream.read_to_end(&mut bytes)).await.map(|_| bytes)
}

async fn hears_nothing(stream: &mut TcpStream) {
    let heard = timeout(SILENCE, stream.read_u8()).await;
    assert!(heard.is_err(), "{heard:?}");
}

async fn is_reset(stream: &mut TcpStream) {
    assert_eq!(rest(stream).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn bytes_pass_and_are_counted() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    let sent: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let (mut from, mut to) = stream.split();
    let write = async {
        to.write_all(&sent).await?;
        to.shutdown().await
    };
    let mut received = Vec::new();
    let (written, _) = soon(async { tokio::join!(write, from.read_to_end(&mut received)) }).await;
    written.unwrap();
    assert!(received == sent, "{} of {} bytes, or others", received.len(), sent.len());
    let traffic = soon(proxy.traffic_when(|traffic| traffic.open == 0)).await;
    assert_eq!((traffic.accepted, traffic.swallowed_bytes), (1, 0));
    assert_eq!((traffic.to_server_bytes, traffic.to_client_bytes), (3_000_000, 3_000_000));
}

#[tokio::test]
async fn a_delay_holds_bytes_back_each_way_and_no_longer() {
    let delay = Duration::from_millis(60);
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    round_trip(&mut stream).await;
    proxy.set(Fault::Delay(delay)).await.unwrap();
    let begin = Instant::now();
    round_trip(&mut stream).await;
    assert!(begin.elapsed() >= 2 * delay, "{:?}", begin.elapsed());
    // What follows closely is not delayed once more: a hundred writes do not take a hundred delays.
    let begin = Instant::now();
    for _ in 0..100 {
        stream.write_all(b"ping").await.unwrap();
        tokio::task::yield_now().await;
    }
    read(&mut stream, 400).await;
    assert!(begin.elapsed() >= 2 * delay && begin.elapsed() < 100 * delay, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_stall_holds_old_and_new_connections_until_it_is_over() {
    let proxy = proxy().await;
    let mut old = connect(&proxy).await;
    round_trip(&mut old).await;
    proxy.set(Fault::Stall).await.unwrap();
    let mut new = connect(&proxy).await;
    for stream in [&mut old, &mut new] {
        stream.write_all(b"ping").await.unwrap();
        hears_nothing(stream).await;
    }
    proxy.set(Fault::Pass).await.unwrap();
    for stream in [&mut old, &mut new] {
        assert_eq!(read(stream, 4).await, b"ping");
    }
}

#[tokio::test]
async fn a_half_closed_connection_ends_for_one_side_only() {
    let proxy = proxy().await;
    let mut old = connect(&proxy).await;
    round_trip(&mut old).await;
    proxy.set(Fault::HalfClose(Direction::ToClient)).await.unwrap();
    let mut new = connect(&proxy).await;
    for stream in [&mut old, &mut new] {
        assert_eq!(rest(stream).await.unwrap(), b"");
        stream.write_all(b"still heard").await.unwrap();
    }
    let sent = 4 + 2 * 11;
    let met = |traffic: &anyqueue_testkit::Traffic| {
        traffic.to_server_bytes == sent && traffic.swallowed_bytes == 2 * 11
    };
    assert_eq!(soon(proxy.traffic_when(met)).await.to_client_bytes, 4);
}

#[tokio::test]
async fn a_server_that_is_half_closed_sees_the_end_and_can_answer() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    round_trip(&mut stream).await;
    proxy.set(Fault::HalfClose(Direction::ToServer)).await.unwrap();
    // The echo ends when its client does, and that end passes.
    assert_eq!(rest(&mut stream).await.unwrap(), b"");
}

#[tokio::test]
async fn connections_are_reset() {
    let proxy = proxy().await;
    let mut old = connect(&proxy).await;
    round_trip(&mut old).await;
    proxy.set(Fault::Reset).await.unwrap();
    is_reset(&mut old).await;
    let mut new = connect(&proxy).await;
    is_reset(&mut new).await;
    proxy.set(Fault::Pass).await.unwrap();
    let mut next = connect(&proxy).await;
    round_trip(&mut next).await;
    proxy.reset_all();
    is_reset(&mut next).await;
    round_trip(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn a_connection_is_cut_after_so_many_bytes_in_a_direction() {
    let proxy = proxy().await;
    let mut old = connect(&proxy).await;
    round_trip(&mut old).await;
    proxy.set(Fault::CutAfter { direction: Direction::ToClient, bytes: 6 }).await.unwrap();
    let mut new = connect(&proxy).await;
    for stream in [&mut old, &mut new] {
        round_trip(stream).await;
        stream.write_all(b"ping").await.unwrap();
        assert_eq!(read(stream, 2).await, b"pi");
        assert!(rest(stream).await.is_ok_and(|rest| rest.is_empty()));
    }
    proxy.set(Fault::CutAfter { direction: Direction::ToServer, bytes: 0 }).await.unwrap();
    let before = proxy.traffic().to_server_bytes;
    let mut stream = connect(&proxy).await;
    hears_nothing(&mut stream).await;
    stream.write_all(b"ping").await.unwrap();
    // The request that it had not handed on makes the system call this a reset on some ways.
    let _ = rest(&mut stream).await;
    assert_eq!(proxy.traffic().to_server_bytes, before);
}

#[tokio::test]
async fn replies_are_dropped_and_requests_are_not() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    round_trip(&mut stream).await;
    proxy.set(Fault::DropReplies).await.unwrap();
    stream.write_all(b"lost").await.unwrap();
    let traffic = soon(proxy.traffic_when(|traffic| traffic.swallowed_bytes == 4)).await;
    assert_eq!((traffic.to_server_bytes, traffic.to_client_bytes), (8, 4));
    proxy.set(Fault::Pass).await.unwrap();
    round_trip(&mut stream).await;
}

#[tokio::test]
async fn new_connections_are_refused_and_old_ones_go_on() {
    let proxy = proxy().await;
    let mut old = connect(&proxy).await;
    for _ in 0..3 {
        round_trip(&mut old).await;
        proxy.set(Fault::Refuse).await.unwrap();
        let refused = TcpStream::connect(proxy.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        round_trip(&mut old).await;
        proxy.set(Fault::Pass).await.unwrap();
        round_trip(&mut connect(&proxy).await).await;
    }
}

#[tokio::test]
async fn what_is_there_is_cut_and_what_comes_is_not() {
    let proxy = proxy().await;
    let mut streams = [connect(&proxy).await, connect(&proxy).await];
    for stream in &mut streams {
        round_trip(stream).await;
    }
    assert_eq!(proxy.traffic().open, 2);
    proxy.cut_all();
    for stream in &mut streams {
        assert_eq!(rest(stream).await.unwrap(), b"");
    }
    soon(proxy.traffic_when(|traffic| traffic.open == 0)).await;
    round_trip(&mut connect(&proxy).await).await;
    assert_eq!(proxy.traffic().accepted, 3);
}

#[tokio::test]
async fn a_server_that_is_not_there_resets_and_may_come_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let proxy = Proxy::start(addr).unwrap();
    is_reset(&mut connect(&proxy).await).await;
    let listener = TcpListener::bind(addr).await.unwrap();
    let mut stream = connect(&proxy).await;
    let (mut server, _) = soon(listener.accept()).await.unwrap();
    server.write_all(b"here").await.unwrap();
    assert_eq!(read(&mut stream, 4).await, b"here");
}

#[tokio::test]
async fn a_dropped_proxy_closes_everything() {
    let proxy = proxy().await;
    let addr = proxy.addr();
    let mut stream = connect(&proxy).await;
    round_trip(&mut stream).await;
    drop(proxy);
    assert_eq!(rest(&mut stream).await.unwrap(), b"");
    let refused = TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

/// Says one byte to whoever connects.
async fn greeter(byte: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut streams = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(&[byte]).await.unwrap();
            streams.push(stream);
        }
    });
    addr
}

#[tokio::test]
async fn new_connections_are_led_elsewhere_and_old_ones_stay() {
    let proxy = proxy().await;
    let mut old = connect(&proxy).await;
    round_trip(&mut old).await;
    proxy.redirect(greeter(b'2').await);
    assert_eq!(read(&mut connect(&proxy).await, 1).await, b"2");
    round_trip(&mut old).await;
}

//! A server that is too old, played by a few lines.

use anyqueue::{ErrorKind, RetryClass};
use anyqueue_redis::RedisQueue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Reads a command, which is an array of texts.
async fn read_command(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..read_number(stream, '*').await? {
        let length = read_number(stream, '$').await?;
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).await.ok()?;
        words.push(String::from_utf8_lossy(&word[..length]).into_owned());
    }
    Some(words)
}

async fn read_number(stream: &mut BufReader<TcpStream>, mark: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}

async fn serve(stream: TcpStream, info: &str) {
    let mut stream = BufReader::new(stream);
    while let Some(words) = read_command(&mut stream).await {
        let answer = match words[0].as_str() {
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            _ => "+OK\r\n".to_owned(),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_with_its_version_and_the_oldest_that_will_do() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, "redis_version:6.0.16\r\nredis_mode:standalone\r\nrole:master\r\n"));
        }
    });
    let error = RedisQueue::open(&url).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Incompatible, RetryClass::Never), "{error}");
    assert!(error.message().contains("6.0.16") && error.message().contains("6.2"), "{error}");
}

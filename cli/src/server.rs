//! Finds out which kind of server is behind an address: used after a backend could not be opened, for users
//! who mixed up ports or schemes.

use std::time::Duration;

use anyqueue::adapter::StorageUrl;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long connecting, and each reply, may take: a hint is not worth a long wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// Redis replies to it, RabbitMQ and web servers refuse it in their own words, PostgreSQL hangs up.
const PING: &[u8] = b"PING\r\n\r\n";
/// PostgreSQL's `SSLRequest`, to which it replies with one byte.
const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// What was found at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Redis,
    Postgres,
    RabbitMq,
    Web,
    /// An unknown server that speaks TLS.
    Tls,
}

impl Server {
    /// What to tell a user who expected a server of `scheme`; `None` if this is such a server.
    fn advice(self, scheme: &str) -> Option<&'static str> {
        match (self, scheme) {
            (Self::Redis, "redis" | "redis-cluster" | "redis-sentinel")
            | (Self::Postgres, "postgres" | "postgresql")
            | (Self::RabbitMq, "amqp")
            | (Self::Tls, "rediss" | "amqps") => None,
            (Self::Redis, "rediss") => Some("a Redis server without TLS is there: try redis://"),
            (Self::RabbitMq, "amqps") => Some("a RabbitMQ server without TLS is there: try amqp://"),
            (Self::Tls, "redis") => Some("a server that speaks TLS is there: try rediss://"),
            (Self::Tls, "amqp") => Some("a server that speaks TLS is there: try amqps://"),
            (Self::Redis, _) => Some("a Redis server is there, whose URLs begin with redis://"),
            (Self::Postgres, _) => Some("a PostgreSQL server is there, whose URLs begin with postgres://"),
            (Self::RabbitMq, _) => Some("a RabbitMQ server is there, whose URLs begin with amqp://"),
            (Self::Web, _) => {
                Some("a web server is there, such as an administration page: use the port of the queue")
            }
            (Self::Tls, _) => Some("a server that speaks TLS is there: check the port"),
        }
    }
}

/// What is wrong with the address of the URL, if that can be seen from outside.
pub(crate) async fn hint(url: &str) -> Option<String> {
    let url = StorageUrl::parse(url).ok()?;
    let port = url.url().port().or_else(|| usual_port(url.scheme()))?;
    let host = url.url().host_str()?.trim_matches(['[', ']']);
    let found = match timeout(PATIENCE, TcpStream::connect((host, port))).await.ok()? {
        Ok(stream) => identify(stream, host, port).await?.advice(url.scheme())?,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => "nothing listens there",
        Err(_) => return None,
    };
    Some(format!("port {port} of {host}: {found}"))
}

/// The port that the backend's client uses if the URL names none.
fn usual_port(scheme: &str) -> Option<u16> {
    match scheme {
        "postgres" | "postgresql" => Some(5432),
        "redis" | "rediss" | "redis-cluster" => Some(6379),
        "redis-sentinel" => Some(26379),
        "amqp" => Some(5672),
        "amqps" => Some(5671),
        _ => None,
    }
}

async fn identify(stream: TcpStream, host: &str, port: u16) -> Option<Server> {
    let reply = reply(stream, PING).await;
    if let Some(server) = of_ping(&reply) {
        return Some(server);
    }
    let again = timeout(PATIENCE, TcpStream::connect((host, port))).await.ok()?.ok()?;
    let reply = self::reply(again, SSL_REQUEST).await;
    matches!(reply.as_slice(), b"S" | b"N").then_some(Server::Postgres)
}

fn of_ping(reply: &[u8]) -> Option<Server> {
    let begins = |start: &[u8]| reply.starts_with(start);
    if begins(b"+PONG") || begins(b"-NOAUTH") || begins(b"-ERR") || begins(b"-LOADING") || begins(b"-DENIED")
    {
        Some(Server::Redis)
    } else if begins(b"AMQP") {
        Some(Server::RabbitMq)
    } else if begins(b"HTTP/") {
        Some(Server::Web)
    } else if begins(&[0x15, 0x03]) {
        // This is how the record of a TLS alert begins.
        Some(Server::Tls)
    } else {
        None
    }
}

/// The beginning of the reply to this request; empty if there is none.
async fn reply(mut stream: TcpStream, request: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; 16];
    let exchange = async {
        stream.write_all(request).await?;
        stream.read(&mut reply).await
    };
    let read = timeout(PATIENCE, exchange).await.ok().and_then(Result::ok).unwrap_or(0);
    reply.truncate(read);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_replies() {
        for (reply, server) in [
            (b"+PONG\r\n".as_slice(), Some(Server::Redis)),
            (b"-NOAUTH Authenti", Some(Server::Redis)),
            (b"AMQP\x00\x00\x09\x01", Some(Server::RabbitMq)),
            (b"HTTP/1.1 400 Bad", Some(Server::Web)),
            (b"\x15\x03\x01\x00\x02\x02\x46", Some(Server::Tls)),
            (b"", None),
            (b"220 mail", None),
        ] {
            assert_eq!(of_ping(reply), server, "{reply:?}");
        }
    }

    #[test]
    fn what_the_scheme_is_for_is_nothing_to_tell() {
        assert_eq!(Server::Redis.advice("redis"), None);
        assert_eq!(Server::Tls.advice("amqps"), None);
        assert!(Server::Redis.advice("amqp").is_some_and(|advice| advice.contains("redis://")));
        assert!(Server::Tls.advice("redis").is_some_and(|advice| advice.contains("rediss://")));
    }

    #[tokio::test]
    async fn a_port_at_which_nothing_listens_is_told() {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let hint = hint(&format!("redis://127.0.0.1:{port}/")).await.unwrap();
        assert_eq!(hint, format!("port {port} of 127.0.0.1: nothing listens there"));
        assert_eq!(super::hint("sqlite:jobs.db").await, None);
    }
}

//! URL parameters of a queue on a broker.

use std::str::FromStr;

use anyqueue::Result;
use anyqueue::adapter::{StorageUrl, UrlOption};
use lapin::uri::AMQPUri;

use crate::config::{Config, RabbitMqBuilder};
use crate::error::ERRORS;

impl RabbitMqBuilder {
    pub(crate) fn from_url(url: &StorageUrl) -> Result<Self> {
        let mut config = Config::of(uri(url)?);
        if let Some(nodes) = url.option::<String>("nodes")? {
            config.nodes = nodes.split(',').map(node).collect::<Result<_>>()?;
        }
        config.prefix = url.option("prefix")?.unwrap_or(config.prefix);
        config.queue_type = url.option("queue_type")?.unwrap_or(config.queue_type);
        config.prefetch = url.option("prefetch")?.unwrap_or(config.prefetch);
        config.queue_age = url.duration("queue_age")?.unwrap_or(config.queue_age);
        config.connect_timeout = url.duration("connect_timeout")?.unwrap_or(config.connect_timeout);
        config.call_timeout = url.duration("call_timeout")?.unwrap_or(config.call_timeout);
        config.heartbeat = url.duration("heartbeat")?.unwrap_or(config.heartbeat);
        config.consumer_timeout = url.duration("consumer_timeout")?.unwrap_or(config.consumer_timeout);
        config.message_bytes = url.option("message_bytes")?.unwrap_or(config.message_bytes);
        config.ca_file = url.option("ca_file")?;
        Ok(Self(config))
    }
}

/// Reads the address, login and virtual host. This is strict where the client's parser would fall back to
/// defaults.
fn uri(url: &StorageUrl) -> Result<AMQPUri> {
    let unusable = || {
        ERRORS.invalid(
            "this is not a valid AMQP URL: write amqp://user:password@host:5672/vhost, with %2f for the virtual host /",
        )
    };
    let host = url.url().host_str().filter(|host| !host.is_empty()).ok_or_else(unusable)?;
    let mut plain = url.url().clone();
    plain.set_query(None); // our own options are not the client's
    // The client's error is dropped: it may quote parts of the URL.
    let mut uri = AMQPUri::from_str(plain.as_str()).map_err(|_| unusable())?;
    host.trim_matches(['[', ']']).clone_into(&mut uri.authority.host);
    if matches!(url.url().path(), "" | "/") {
        "/".clone_into(&mut uri.vhost);
    }
    Ok(uri)
}

fn node(text: &str) -> Result<(String, u16)> {
    let node = text
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?)));
    node.filter(|(host, _)| !host.is_empty())
        .ok_or_else(|| ERRORS.invalid("nodes must be hosts and ports, as in nodes=one:5672,two:5672"))
}

/// All options that a URL can have.
pub(crate) const OPTIONS: &[UrlOption] = &[
    UrlOption::new("nodes", "none", "further nodes of the cluster: host:port,host:port"),
    UrlOption::new(
        "prefix",
        "anyqueue",
        "what all queues and exchanges begin with, 1 to 64 of A-Z a-z 0-9 . _ -",
    ),
    UrlOption::new("queue_type", "quorum", "quorum or classic"),
    UrlOption::new("prefetch", "0", "messages of each level held ready for pulls to come; 0: none"),
    UrlOption::new(
        "queue_age",
        "2s",
        "how old a quorum queue must be before a push to it returns; 0s: trust it at once",
    ),
    UrlOption::new("connect_timeout", "5s", "how long making a connection may take"),
    UrlOption::new("call_timeout", "10s", "how long the server may take to answer"),
    UrlOption::new("heartbeat", "10s", "how often either side shows that it is alive, in whole seconds"),
    UrlOption::new(
        "consumer_timeout",
        "30m",
        "the server's consumer_timeout: how long a delivery can be held; at least 1m",
    ),
    UrlOption::new("message_bytes", "8388608", "largest encoded message in bytes"),
    UrlOption::new("ca_file", "none", "certificates in PEM to trust beside the system's own, for amqps"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        RabbitMqBuilder::from_url(&StorageUrl::parse(url)?)?.checked()
    }

    #[test]
    fn hosts_and_virtual_hosts_are_read_as_they_are() {
        for (url, host, vhost) in [
            ("amqp://localhost", "localhost", "/"),
            ("amqp://localhost/", "localhost", "/"),
            ("amqp://10.0.0.1:1234/%2f", "10.0.0.1", "/"),
            ("amqp://[::1]/jobs", "::1", "jobs"),
            ("amqps://u:p@mq.example/a%20b?prefix=x", "mq.example", "a b"),
        ] {
            let config = read(url).unwrap();
            assert_eq!(
                (config.uri.authority.host.as_str(), config.uri.vhost.as_str()),
                (host, vhost),
                "{url}"
            );
        }
    }

    #[test]
    fn another_scheme_is_refused_and_the_error_says_what_to_write() {
        for url in
            ["redis://user:secret@localhost", "http://user:secret@localhost:15672", "amqpss://localhost"]
        {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), anyqueue::ErrorKind::InvalidInput, "{url}");
            assert!(error.message().contains("write amqp://"), "{url}: {error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_and_no_password_is_shown() {
        for query in [
            "prefix=a:b",
            "nodes=one",
            "nodes=one:5672,",
            "ca_file=x",
            "prefetch=10001",
            "heartbeat=1ms",
            "consumer_timeout=59s",
            "message_bytes=1",
            "queue_type=stream",
        ] {
            let error = read(&format!("amqp://user:secret@localhost?{query}")).unwrap_err();
            assert_eq!(error.kind(), anyqueue::ErrorKind::InvalidInput, "{query}");
            assert!(!format!("{error:?}").contains("secret"));
        }
        let nodes = read("amqp://one:1/jobs?nodes=two:2,[::1]:3").unwrap();
        let places: Vec<_> = (0..nodes.node_count()).map(|place| nodes.node(place)).collect();
        let hosts: Vec<_> =
            places.iter().map(|uri| (uri.authority.host.as_str(), uri.authority.port)).collect();
        assert_eq!(hosts, [("one", 1), ("two", 2), ("::1", 3)]);
        assert!(places.iter().all(|uri| uri.vhost == "jobs"));
        let short = read("amqp://localhost?consumer_timeout=1m").unwrap();
        assert!(crate::capabilities::capabilities(&short).lease.max >= std::time::Duration::from_secs(30));
        assert!(read("amqp:").is_err());
        assert!(!format!("{:?}", read("amqp://user:secret@localhost").unwrap()).contains("secret"));
    }
}

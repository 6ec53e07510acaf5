//! URL parameters.

use anyqueue::Result;
use anyqueue::adapter::{StorageUrl, UrlOption};
use redis::IntoConnectionInfo;

use crate::config::{RedisBuilder, Topology};
use crate::error::ERRORS;

const SENTINEL_PORT: u16 = 26379;

impl RedisBuilder {
    pub(crate) fn from_url(url: &StorageUrl) -> Result<Self> {
        if !SCHEMES.contains(&url.scheme()) {
            return Err(unusable());
        }
        let (scheme, topology) = match url.scheme().split_once('-') {
            None => (url.scheme(), Topology::Server),
            Some((scheme, "cluster")) => (scheme, Topology::Cluster),
            Some((scheme, _)) => (scheme, Topology::Sentinel(String::new())),
        };
        let mut plain = url.url().clone();
        plain.set_query(None); // our own options are not the client's
        plain.set_fragment(None);
        if plain.set_scheme(scheme).is_err() {
            return Err(unusable());
        }
        if plain.port().is_none() && matches!(topology, Topology::Sentinel(_)) {
            plain.set_port(Some(SENTINEL_PORT)).map_err(|()| unusable())?;
        }
        // The client's error is dropped: it may quote parts of the URL.
        let mut builder = Self::new(plain.as_str().into_connection_info().map_err(|_| unusable())?);
        let master = url.option::<String>("master")?;
        builder.0.topology = match (topology, master) {
            (Topology::Sentinel(_), Some(master)) => Topology::Sentinel(master),
            (Topology::Sentinel(_), None) => {
                return Err(
                    ERRORS.invalid("redis-sentinel:// needs the name of the master, as in ?master=mymaster")
                );
            }
            (_, Some(_)) => return Err(ERRORS.invalid("master=… needs redis-sentinel://")),
            (topology, None) => topology,
        };
        if let Some(nodes) = url.option::<String>("nodes")? {
            builder.0.nodes = nodes.split(',').map(node).collect::<Result<_>>()?;
        }
        builder.0.tls.authority = url.option("ca_file")?;
        builder.0.tls.client = match (url.option("cert_file")?, url.option("key_file")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(ERRORS.invalid("cert_file and key_file must be set together")),
        };
        let config = &mut builder.0;
        config.prefix = url.option("prefix")?.unwrap_or_else(|| config.prefix.clone());
        config.poll_interval = url.duration("poll_interval")?.unwrap_or(config.poll_interval);
        config.connect_timeout = url.duration("connect_timeout")?.unwrap_or(config.connect_timeout);
        config.call_timeout = url.duration("call_timeout")?.unwrap_or(config.call_timeout);
        config.message_bytes = url.option("message_bytes")?.unwrap_or(config.message_bytes);
        Ok(builder)
    }
}

fn unusable() -> anyqueue::Error {
    ERRORS.invalid(
        "this is not a valid redis URL: write redis://user:password@host:6379/0, where 0 is the database",
    )
}

fn node(text: &str) -> Result<(String, u16)> {
    let node = text.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    node.filter(|(host, _)| !host.is_empty())
        .ok_or_else(|| ERRORS.invalid("nodes must be hosts and ports, as in nodes=one:6379,two:6379"))
}

/// What a URL begins with.
pub(crate) const SCHEMES: &[&str] =
    &["redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel"];

/// All options that a URL can have.
pub(crate) const OPTIONS: &[UrlOption] = &[
    UrlOption::new("prefix", "anyqueue", "what all keys begin with, 1 to 64 of A-Z a-z 0-9 . _ : -"),
    UrlOption::new("nodes", "none", "further nodes of the cluster, or sentinels: host:port,host:port"),
    UrlOption::new("master", "none", "the name that the sentinels know the master by"),
    UrlOption::new("ca_file", "none", "file with the certificates of the authorities to trust"),
    UrlOption::new("cert_file", "none", "file with the certificate to show to the servers"),
    UrlOption::new("key_file", "none", "file with its private key"),
    UrlOption::new("poll_interval", "900ms", "how often waiting pulls look by themselves, 1ms to 60s"),
    UrlOption::new("connect_timeout", "5s", "how long making a connection may take"),
    UrlOption::new("call_timeout", "10s", "how long the server may take to answer one call"),
    UrlOption::new("message_bytes", "16777216", "largest encoded message in bytes"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RedisBuilder> {
        RedisBuilder::from_url(&StorageUrl::parse(text).unwrap())
    }

    #[test]
    fn shapes_are_told_by_the_scheme() {
        let cluster = parse("rediss-cluster://u:p@a:1/?nodes=b:2,c:3&ca_file=/x").unwrap().0;
        assert_eq!(cluster.topology, Topology::Cluster);
        let addresses: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["a:1", "b:2", "c:3"]);
        let sentinel = parse("redis-sentinel://a/3?master=m").unwrap().0;
        assert_eq!(sentinel.topology, Topology::Sentinel("m".to_owned()));
        assert_eq!(sentinel.target(), "redis master \"m\" of the sentinel at a:26379");
        assert_eq!(parse("redis://a/").unwrap().0.topology, Topology::Server);
    }

    #[test]
    fn another_scheme_is_refused_and_the_error_says_what_to_write() {
        for text in ["amqp://u:secret@a/", "redis-ring://a/?master=m", "valkey://a/", "redis+unix:///a"] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), anyqueue::ErrorKind::InvalidInput, "{text}");
            assert!(error.message().contains("write redis://"), "{text}: {error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        for scheme in SCHEMES.iter().filter(|scheme| !scheme.ends_with("-sentinel")) {
            assert!(parse(&format!("{scheme}://a/")).is_ok(), "{scheme}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for text in [
            "redis-sentinel://a/",
            "redis://a/?master=m",
            "redis-cluster://a/?nodes=b",
            "redis-cluster://a/?nodes=:1",
            "rediss://a/?cert_file=/x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

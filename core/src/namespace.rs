//! How a storage URL names one of several queues in the same place.

/// How the URLs of a [`Backend`](crate::adapter::Backend) tell apart queues that share a server or a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Namespace {
    /// They do not: each opened storage is a queue of its own.
    Opened,
    /// By a file next to the one in the URL.
    File,
    /// By the path of the URL.
    Path,
    /// By the value of this URL option.
    Option(&'static str),
}

impl Namespace {
    pub(crate) fn url(self, url: &str, name: &str) -> String {
        let (address, options) = url.split_once('?').map_or((url, None), |(a, options)| (a, Some(options)));
        match self {
            Self::Opened => url.to_owned(),
            Self::File => with_options(&format!("{address}.{name}"), options),
            Self::Path => with_options(&format!("{}/{name}", without_path(address)), options),
            Self::Option(option) => {
                let is_kept = |pair: &&str| pair.split('=').next() != Some(option) && !pair.is_empty();
                let others = options.into_iter().flat_map(|options| options.split('&')).filter(is_kept);
                let own = format!("{option}={name}");
                let all: Vec<&str> = others.chain([own.as_str()]).collect();
                with_options(address, Some(&all.join("&")))
            }
        }
    }
}

fn with_options(address: &str, options: Option<&str>) -> String {
    options.map_or_else(|| address.to_owned(), |options| format!("{address}?{options}"))
}

/// Returns the scheme and the host.
fn without_path(address: &str) -> &str {
    let host = address.find("://").map_or(0, |at| at + 3);
    let path = address.get(host..).and_then(|rest| rest.find('/')).map(|at| host + at);
    path.and_then(|path| address.get(..path)).unwrap_or(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_a_url_of_its_own() {
        assert_eq!(Namespace::Opened.url("memory:?max=1", "n"), "memory:?max=1");
        assert_eq!(Namespace::File.url("sqlite:a.db", "n"), "sqlite:a.db.n");
        let file = Namespace::File.url("sqlite:/tmp/a.db?synchronous=normal", "n");
        assert_eq!(file, "sqlite:/tmp/a.db.n?synchronous=normal");
        assert_eq!(Namespace::Path.url("sqs://eu-west-1", "n"), "sqs://eu-west-1/n");
        let path = Namespace::Path.url("sqs://k:s@eu-west-1/jobs?endpoint=http://h:1/", "n");
        assert_eq!(path, "sqs://k:s@eu-west-1/n?endpoint=http://h:1/");
        let option = Namespace::Option("prefix");
        assert_eq!(option.url("redis://h/?prefix=a&x=1", "n"), "redis://h/?x=1&prefix=n");
        assert_eq!(option.url("redis://h/?prefix=a", "n"), "redis://h/?prefix=n");
        assert_eq!(option.url("redis://h", "n"), "redis://h?prefix=n");
        assert_eq!(option.url("redis://h?", "n"), "redis://h?prefix=n");
    }
}

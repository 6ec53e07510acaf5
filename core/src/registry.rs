//! Opening a storage by URL: an explicit list of backends, no globals.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::error::{Error, Operation, Result};
use crate::namespace::Namespace;
use crate::storage::Storage;

/// What [`Backend::open`] returns.
pub type OpenFuture = Pin<Box<dyn Future<Output = Result<Arc<dyn Storage>>> + Send>>;

/// One backend as a [`Registry`] knows it. Each adapter crate has a function `backend()` that makes it.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// The backend's name.
    pub name: &'static str,
    /// The URL schemes that it opens.
    pub schemes: &'static [&'static str],
    /// The options it takes as query parameters; the registry refuses others.
    pub options: &'static [UrlOption],
    /// How its URLs keep queues apart that share a server or a folder.
    pub namespace: Namespace,
    /// Opens a storage. Does not [`init`](crate::adapter::QueueStorage::init) it.
    pub open: fn(StorageUrl) -> OpenFuture,
}

impl Backend {
    /// The URL of the queue with this name where `url` leads to: another schema, prefix or file at the same server or in the same
    /// folder. For tests and tools that need several. The name is not checked here; opening does that.
    ///
    /// ```
    /// let backend = anyqueue_memory::backend();
    /// assert_eq!(backend.url_in("memory:", "trial"), "memory:", "each storage that is opened is one of its own");
    /// ```
    #[must_use]
    pub fn url_in(&self, url: &str, namespace: &str) -> String {
        self.namespace.url(url, namespace)
    }
}

/// One query parameter of a storage URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlOption {
    /// Its name.
    pub name: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it does, with its unit.
    pub help: &'static str,
}

/// The backends a program knows.
///
/// ```
/// # #[derive(Debug)] struct S;
/// use anyqueue::Registry;
/// let registry = Registry::new().with(anyqueue_memory::backend());
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let storage = registry.open("memory:").await?;
/// assert_eq!(storage.name(), "memory");
/// let error = registry.open("carrier-pigeon://roof").await.unwrap_err();
/// assert!(error.to_string().contains("memory"), "an unknown scheme lists the known ones: {error}");
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Registry {
    backends: Vec<Backend>,
}

impl Registry {
    /// A registry that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a backend. Where two open the same scheme, the later one wins.
    pub fn with(mut self, backend: Backend) -> Self {
        self.backends.insert(0, backend);
        self
    }

    /// The backends it knows.
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// Opens the storage that the URL names, without initialising it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a URL that does not parse, an unknown scheme, an unknown or repeated
    /// option or a value of the wrong form, always with what is allowed; else whatever opening says. No error shows a password.
    pub async fn open(&self, url: &str) -> Result<Arc<dyn Storage>> {
        let url = StorageUrl::parse(url)?;
        let Some(backend) = self.backends.iter().find(|backend| backend.schemes.contains(&url.scheme()))
        else {
            let mut known: Vec<_> =
                self.backends.iter().flat_map(|b| b.schemes).map(|s| format!("{s}:")).collect();
            known.sort_unstable();
            return Err(open_error(format!(
                "unknown scheme {:?}: known are {}",
                url.scheme(),
                known.join(", ")
            )));
        };
        url.check_options(backend)?;
        (backend.open)(url).await
    }
}

/// A parsed storage URL, as an adapter reads it.
#[derive(Clone)]
pub struct StorageUrl {
    url: Url,
    path: String,
}

impl StorageUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if it is none. The text is not repeated: it may hold a password.
    pub fn parse(text: &str) -> Result<Self> {
        let url = Url::parse(text).map_err(|e| {
            open_error("this is no storage URL: write scheme:address, as the backend documents it")
                .with_source(e)
        })?;
        let path = percent_encoding::percent_decode_str(url.path())
            .decode_utf8()
            .map_err(|e| open_error("the path of the storage URL is not UTF-8").with_source(e))?
            .into_owned();
        Ok(Self { url, path })
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        self.url.scheme()
    }

    /// The path, percent-decoded: `jobs.db` for `sqlite:jobs.db`, `/srv/jobs.db` for `sqlite:///srv/jobs.db`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The whole URL, password included: for the server's client, not for messages.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// An option's value.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if it does not parse.
    pub fn option<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        self.parse_option(name, std::any::type_name::<T>(), |text| text.parse().ok())
    }

    /// An option's value as a duration: `500ms`, `30s`, `1h 30m`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if it does not parse.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>> {
        self.parse_option(name, "duration such as 500ms, 30s or 1h", |text| {
            humantime::parse_duration(text).ok()
        })
    }

    fn parse_option<T>(
        &self,
        name: &str,
        form: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some((_, value)) = self.url.query_pairs().find(|(key, _)| key == name) else {
            return Ok(None);
        };
        match parse(&value) {
            Some(value) => Ok(Some(value)),
            None => Err(open_error(format!("option {name}={value:?} is no {form}"))),
        }
    }

    fn check_options(&self, backend: &Backend) -> Result<()> {
        let mut seen = Vec::new();
        for (key, _) in self.url.query_pairs() {
            if !backend.options.iter().any(|option| option.name == key) {
                let known: Vec<_> = backend.options.iter().map(|option| option.name).collect();
                return Err(open_error(format!(
                    "{} has no option {key:?}: known are {}",
                    backend.name,
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                )));
            }
            if seen.contains(&key) {
                return Err(open_error(format!("option {key:?} is given twice")));
            }
            seen.push(key);
        }
        Ok(())
    }
}

/// Without the password.
impl fmt::Debug for StorageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.url.clone();
        if shown.password().is_some() && shown.set_password(Some("***")).is_err() {
            return write!(f, "StorageUrl({}:..)", self.url.scheme());
        }
        write!(f, "StorageUrl({shown})")
    }
}

fn open_error(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::invalid(message).with_operation(Operation::Open)
}

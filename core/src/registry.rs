//! Opening storages by URL, from an explicit list of backends without globals.

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

/// The future that [`Backend::open`] returns.
pub type OpenFuture = Pin<Box<dyn Future<Output = Result<Arc<dyn Storage>>> + Send>>;

/// A backend, as registered in a [`Registry`]. Each adapter crate has a function `backend()` that returns its
/// own.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// The backend's name.
    pub name: &'static str,
    /// The URL schemes that it handles.
    pub schemes: &'static [&'static str],
    /// The options that it accepts as query parameters; the registry refuses all others.
    pub options: &'static [UrlOption],
    /// How its URLs tell apart queues that share a server or a folder.
    pub namespace: Namespace,
    /// Opens a storage, without calling [`init`](crate::adapter::QueueStorage::init) on it.
    pub open: fn(StorageUrl) -> OpenFuture,
}

impl Backend {
    /// Returns the URL of a queue with this name in the same place as `url`: another schema, prefix or file
    /// on the same server or in the same folder. For tests and tools that need several queues. The name is
    /// not checked here but when the storage is opened.
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

/// A query parameter of a storage URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlOption {
    /// Its name.
    pub name: &'static str,
    /// The value that applies without it.
    pub default: &'static str,
    /// What the option does, including its unit.
    pub help: &'static str,
}

impl UrlOption {
    /// Describes an option, for the list of a [`Backend`].
    ///
    /// ```
    /// use anyqueue::adapter::UrlOption;
    /// const OPTIONS: &[UrlOption] = &[UrlOption::new("call_timeout", "10s", "how long one call may take")];
    /// ```
    #[must_use]
    pub const fn new(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self { name, default, help }
    }
}

/// The backends that a program can open.
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
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a backend. If two backends handle the same scheme, the later one wins.
    pub fn with(mut self, backend: Backend) -> Self {
        self.backends.insert(0, backend);
        self
    }

    /// Returns the registered backends.
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// Opens the storage that the URL names, without initialising it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid URL, an unknown scheme, an unknown or
    /// repeated option, or a malformed value; the error says what is allowed. Otherwise the error of opening
    /// the storage. No error contains a password.
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

/// A parsed storage URL, for adapters.
#[derive(Clone)]
pub struct StorageUrl {
    url: Url,
    path: String,
}

impl StorageUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if this is not a URL. The error does not repeat the
    /// text, which may contain a password.
    pub fn parse(text: &str) -> Result<Self> {
        let url = Url::parse(text).map_err(|e| {
            open_error("this is not a storage URL: write scheme:address, as the backend documents it")
                .with_source(e)
        })?;
        let path = percent_encoding::percent_decode_str(url.path())
            .decode_utf8()
            .map_err(|e| open_error("the path of the storage URL is not UTF-8").with_source(e))?
            .into_owned();
        Ok(Self { url, path })
    }

    /// Returns the scheme, in lower case.
    pub fn scheme(&self) -> &str {
        self.url.scheme()
    }

    /// Returns the path, percent-decoded: `jobs.db` for `sqlite:jobs.db`, `/srv/jobs.db` for
    /// `sqlite:///srv/jobs.db`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the whole URL, including the password: for the server's client, not for messages.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the value of an option, if it is given.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the value cannot be parsed.
    pub fn option<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        self.parse_option(name, std::any::type_name::<T>(), |text| text.parse().ok())
    }

    /// Returns the value of an option as a duration, such as `500ms`, `30s` or `1h 30m`, if it is given.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the value cannot be parsed.
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

/// Shows the URL without its password.
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

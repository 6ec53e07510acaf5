//! The servers of a run, and which of them each namespace is on.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The servers of a run. Private servers are gone when this is dropped.
///
/// Each namespace is on one of them, from the moment that it is first asked for until it is removed.
pub struct Servers {
    /// At least one.
    urls: Vec<String>,
    /// The URL of each namespace that was not removed.
    taken: Mutex<BTreeMap<String, String>>,
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl Servers {
    /// Makes servers that are reachable at this one URL as long as `kept` exists.
    pub fn new(url: impl Into<String>, kept: impl Send + Sync + 'static) -> Self {
        Self { urls: vec![url.into()], taken: Mutex::default(), kept: vec![Box::new(kept)] }
    }

    /// Adds another one, which shares the namespaces with those before.
    #[must_use]
    pub fn and(mut self, url: impl Into<String>, kept: impl Send + Sync + 'static) -> Self {
        self.urls.push(url.into());
        self.kept.push(Box::new(kept));
        self
    }

    pub(super) fn count(&self) -> usize {
        self.urls.len()
    }

    /// The URL of the namespace's server; if it has none, that of the server with the fewest namespaces, where
    /// it stays.
    pub(super) fn url_of(&self, namespace: &str) -> String {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(url) = taken.get(namespace) {
            return url.clone();
        }
        let load = |url: &&String| taken.values().filter(|other| other == url).count();
        let url = self.urls.iter().min_by_key(load).cloned().unwrap_or_default();
        taken.insert(namespace.to_owned(), url.clone());
        url
    }

    /// Frees the place of the namespace, and returns the URL of the server that it was on, if it was on any.
    pub(super) fn leave(&self, namespace: &str) -> Option<String> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace)
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("urls", &self.urls).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Servers;

    #[test]
    fn a_namespace_stays_on_the_server_that_had_the_fewest() {
        let servers = Servers::new("one", ()).and("two", ());
        assert_eq!(servers.count(), 2);
        for (namespace, url) in [("a", "one"), ("b", "two"), ("c", "one"), ("b", "two"), ("d", "two")] {
            assert_eq!(servers.url_of(namespace), url, "{namespace}");
        }
        for namespace in ["b", "d"] {
            assert_eq!(servers.leave(namespace).as_deref(), Some("two"));
            assert_eq!(servers.leave(namespace), None, "it was freed");
        }
        assert_eq!(["e", "f", "g"].map(|namespace| servers.url_of(namespace)), ["two", "two", "one"]);
    }
}

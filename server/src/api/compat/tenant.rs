//! Who a notification is for, according to its headers and to the beginning of its task's name.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::problem::{Answer, Problem};

const SERVICE: &str = "fiware-service";
const SERVICE_PATH: &str = "fiware-servicepath";
const CORRELATOR: &str = "fiware-correlator";
/// How an empty part is written.
const EMPTY: &str = "\"\"";
const SEPARATOR: char = ':';

/// The three headers; a missing one is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) service: String,
    pub(crate) service_path: String,
    pub(crate) correlator: String,
}

impl Tenant {
    pub(crate) fn of(headers: &HeaderMap) -> Answer<Self> {
        let text = |name: &str| match headers.get(name).map(|value| value.to_str()) {
            None => Ok(String::new()),
            Some(Ok(text)) => Ok(text.to_owned()),
            Some(Err(_)) => Err(Problem::invalid(format!("the header {name} is not visible ASCII"))),
        };
        Ok(Self { service: text(SERVICE)?, service_path: text(SERVICE_PATH)?, correlator: text(CORRELATOR)? })
    }

    /// Whether no tenant is named.
    pub(crate) fn is_nobody(&self) -> bool {
        *self == Self::default()
    }

    /// The headers with their values, for people; the correlator only if there is one.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        fn said(text: &str) -> &str {
            if text.is_empty() { "none" } else { text }
        }
        let correlator = Some((CORRELATOR, self.correlator.as_str())).filter(|(_, text)| !text.is_empty());
        [(SERVICE, said(&self.service)), (SERVICE_PATH, said(&self.service_path))]
            .into_iter()
            .chain(correlator)
    }

    /// The beginning of the names of the tenant's tasks: each part in base64, the correlator only if there is
    /// one. A unique part always follows, so that a prefix that ends with a separator never matches another
    /// tenant with a longer name.
    pub(crate) fn prefix(&self) -> String {
        let mut prefix = String::new();
        let correlator = Some(&self.correlator).filter(|text| !text.is_empty());
        for part in [&self.service, &self.service_path].into_iter().chain(correlator) {
            prefix.push_str(&encoded(part));
            prefix.push(SEPARATOR);
        }
        prefix
    }

    /// Who a task is for, if its name has this form.
    pub(crate) fn of_task(task_id: &str) -> Option<Self> {
        let parts: Vec<String> = task_id.split(SEPARATOR).map(decoded).collect::<Option<_>>()?;
        let [service, service_path, correlator, _unique] = parts.try_into().ok()?;
        Some(Self { service, service_path, correlator })
    }
}

fn encoded(part: &str) -> String {
    if part.is_empty() { EMPTY.to_owned() } else { BASE64.encode(part) }
}

fn decoded(part: &str) -> Option<String> {
    if part == EMPTY {
        return Some(String::new());
    }
    String::from_utf8(BASE64.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tenant(service: &str, path: &str, correlator: &str) -> Tenant {
        let [service, service_path, correlator] = [service, path, correlator].map(str::to_owned);
        Tenant { service, service_path, correlator }
    }

    #[test]
    fn a_name_begins_with_the_tenant_that_it_says() {
        for one in
            [tenant("", "", ""), tenant("t1", "/a", ""), tenant("t1", "/a", "c:1"), tenant("ä", "", "c")]
        {
            let name = format!(
                "{}{}:{}",
                tenant(&one.service, &one.service_path, "").prefix(),
                encoded(&one.correlator),
                encoded("u")
            );
            assert_eq!(Tenant::of_task(&name), Some(one.clone()), "{name}");
            assert!(name.starts_with(&one.prefix()), "{name}");
        }
        assert_eq!(tenant("t1", "", "").prefix(), "dDE=:\"\":");
    }

    #[test]
    fn no_tenant_is_another_one_whose_name_is_longer() {
        // In base64, `abc` is the beginning of `abcdef`.
        let longer = format!("{}{}", tenant("s", "abcdef", "").prefix(), "x");
        assert!(!longer.starts_with(&tenant("s", "abc", "").prefix()));
        assert!(!longer.starts_with(&tenant("s", "", "").prefix()));
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in ["", "job 7", "a:b:c:d", "dDE=", "dDE=:dDE=:dDE=", "dDE=:dDE=:dDE=:dDE=:dDE="] {
            assert_eq!(Tenant::of_task(name), None, "{name}");
        }
    }
}

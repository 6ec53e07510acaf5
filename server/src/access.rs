//! What the caller may do: available to all code that runs for a request, and to nothing outside one.

use std::future::Future;
use std::sync::Arc;

use anyqueue_control::tokens::{Fingerprint, Right, Rights, TokenInfo};
use axum::http::StatusCode;

use crate::noted;
use crate::problem::{Answer, Problem};

tokio::task_local! {
    /// Set by the guard before anything of a request is read. Code that runs without it may do nothing.
    static CALLER: Arc<Access>;
}

/// Who the caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Anybody: there are no tokens.
    Anybody,
    /// A caller with a token that the service was started with.
    Fixed,
    /// A caller with a token from the store.
    Token(TokenInfo),
}

/// The caller, and what it may do.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) who: Who,
    rights: Rights,
    /// The certificate that the caller showed in place of the token that it stands for.
    pub(crate) certificate: Option<Fingerprint>,
}

impl Access {
    pub(crate) fn everything(who: Who) -> Self {
        Self { who, rights: Rights::everything(), certificate: None }
    }

    pub(crate) fn of(token: TokenInfo) -> Self {
        Self { rights: token.rights.clone(), who: Who::Token(token), certificate: None }
    }

    pub(crate) fn by_certificate(self, certificate: Fingerprint) -> Self {
        Self { certificate: Some(certificate), ..self }
    }

    pub(crate) fn has(&self, right: Right) -> bool {
        self.rights.has(right)
    }

    pub(crate) fn covers(&self, partition: &str) -> bool {
        self.rights.covers(partition)
    }

    pub(crate) fn covers_all(&self) -> bool {
        self.rights.covers_all()
    }

    /// The name that distinguishes callers with one token from those with another.
    pub(crate) fn name(&self) -> &str {
        match &self.who {
            Who::Anybody => "",
            Who::Fixed => "(token file)",
            Who::Token(token) => &token.name,
        }
    }
}

/// Runs a future on behalf of a caller.
pub(crate) async fn scope<T>(access: Arc<Access>, done: impl Future<Output = T>) -> T {
    CALLER.scope(access, done).await
}

/// The current caller; `None` outside a request.
pub(crate) fn caller() -> Option<Arc<Access>> {
    CALLER.try_with(Arc::clone).ok()
}

/// Whether the caller may touch this queue.
pub(crate) fn covers(partition: &str) -> bool {
    CALLER.try_with(|access| access.covers(partition)).unwrap_or(false)
}

/// Whether the caller may touch all queues.
pub(crate) fn covers_all() -> bool {
    CALLER.try_with(|access| access.covers_all()).unwrap_or(false)
}

/// Whether the caller may see the contents of messages.
pub(crate) fn sees_payloads() -> bool {
    CALLER.try_with(|access| access.has(Right::Payloads)).unwrap_or(false)
}

/// Refuses a queue that the token does not cover.
pub(crate) fn check(partition: &str) -> Answer<()> {
    noted::queue(partition);
    if covers(partition) {
        Ok(())
    } else {
        Err(forbidden(format!("this token is not for the queue {partition:?}")))
    }
}

/// Refuses to show the contents of messages.
pub(crate) fn check_payloads() -> Answer<()> {
    if sees_payloads() { Ok(()) } else { Err(forbidden("this token lacks the right payloads")) }
}

pub(crate) fn forbidden(text: impl Into<String>) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn outside_a_request_nothing_is_allowed() {
        assert!(!covers("mail") && !covers_all() && !sees_payloads() && caller().is_none());
        let all = Arc::new(Access::everything(Who::Anybody));
        scope(all, async { assert!(covers("mail") && covers_all() && sees_payloads()) }).await;
        assert!(check("mail").is_err() && check_payloads().is_err());
    }
}

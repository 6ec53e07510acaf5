//! What whoever asks may do: known to all that is done for a request, and nothing outside one.

use std::future::Future;
use std::sync::Arc;

use anyqueue_control::tokens::{Fingerprint, Right, Rights, TokenInfo};
use axum::http::StatusCode;

use crate::noted;
use crate::problem::{Answer, Problem};

tokio::task_local! {
    /// Set by the guard, before anything is read of a request. What is done without it may do nothing.
    static CALLER: Arc<Access>;
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Anybody: there are no tokens.
    Anybody,
    /// Somebody with a token that the service was started with.
    Fixed,
    /// Somebody with a token of the store.
    Token(TokenInfo),
}

/// Who asks, and what they may do.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) who: Who,
    rights: Rights,
    /// What they showed instead of a token that it stands for.
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

    /// What tells those with one token from those with another.
    pub(crate) fn name(&self) -> &str {
        match &self.who {
            Who::Anybody => "",
            Who::Fixed => "(token file)",
            Who::Token(token) => &token.name,
        }
    }
}

/// Does something for somebody.
pub(crate) async fn scope<T>(access: Arc<Access>, done: impl Future<Output = T>) -> T {
    CALLER.scope(access, done).await
}

/// Who asks; nobody outside a request.
pub(crate) fn caller() -> Option<Arc<Access>> {
    CALLER.try_with(Arc::clone).ok()
}

/// Whether a queue may be touched.
pub(crate) fn covers(partition: &str) -> bool {
    CALLER.try_with(|access| access.covers(partition)).unwrap_or(false)
}

/// Whether all queues may be touched.
pub(crate) fn covers_all() -> bool {
    CALLER.try_with(|access| access.covers_all()).unwrap_or(false)
}

/// Whether what messages hold may be seen.
pub(crate) fn sees_payloads() -> bool {
    CALLER.try_with(|access| access.has(Right::Payloads)).unwrap_or(false)
}

/// Refuses a queue that the token is not for.
pub(crate) fn check(partition: &str) -> Answer<()> {
    noted::queue(partition);
    if covers(partition) {
        Ok(())
    } else {
        Err(forbidden(format!("this token is not for the queue {partition:?}")))
    }
}

/// Refuses to show what messages hold.
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

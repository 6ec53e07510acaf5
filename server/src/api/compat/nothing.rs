//! Requests whose body may be missing.

use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

use crate::problem::{Answer, Problem};
use crate::wire::Json;

/// A value as JSON, or its default if the request has no body.
pub(crate) struct JsonOrNothing<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for JsonOrNothing<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Answer<Self> {
        if http_body::Body::is_end_stream(request.body()) {
            return Ok(Self(T::default()));
        }
        Json::from_request(request, state).await.map(|Json(value)| Self(value))
    }
}

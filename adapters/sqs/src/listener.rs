//! What every answer is observed for, whatever the request was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use aws_sdk_sqs::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_sqs::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_sqs::error::BoxError;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use aws_smithy_types::date_time::Format;

use crate::clock::{HEADER_GRAIN, ServerClock};

/// When a request was sent.
#[derive(Clone, Copy, Debug)]
struct Asked(Instant);

impl Storable for Asked {
    type Storer = StoreReplace<Self>;
}

/// Observes the server's time in its answers, and counts requests.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) clock: Arc<ServerClock>,
    pub(crate) requests: Arc<AtomicU64>,
}

impl Intercept for Listener {
    fn name(&self) -> &'static str {
        "anyqueue"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        bag.interceptor_state().store_put(Asked(Instant::now()));
        Ok(())
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| aws_smithy_types::DateTime::from_str(date, Format::HttpDate).ok());
        let date = date.and_then(|date| SystemTime::try_from(date).ok());
        if let (Some(server), Some(Asked(asked))) = (date, bag.load::<Asked>()) {
            self.clock.observe(server, HEADER_GRAIN, *asked);
        }
        Ok(())
    }
}

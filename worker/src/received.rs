//! What is known about a delivery, whichever handle to it there is.

use std::time::{Duration, SystemTime};

use anyqueue::{Delivery, DeliveryTwin, Headers, MessageData, MessageId, PartitionId};

/// What is known about a delivery.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    pub(crate) message: &'a MessageData,
    pub(crate) partition: &'a PartitionId,
    #[allow(clippy::struct_field_names, reason = "as a delivery says it")]
    pub(crate) received_at: SystemTime,
    /// How long before that the message was pushed.
    pub(crate) age: Duration,
}

impl<'a> Received<'a> {
    pub(crate) fn id(self) -> MessageId {
        self.message.id()
    }

    pub(crate) fn headers(self) -> &'a Headers {
        self.message.headers()
    }
}

impl<'a> From<&'a Delivery> for Received<'a> {
    fn from(delivery: &'a Delivery) -> Self {
        let (message, partition) = (delivery.message(), delivery.partition());
        Self { message, partition, received_at: delivery.received_at(), age: delivery.age() }
    }
}

impl<'a> From<&'a DeliveryTwin> for Received<'a> {
    fn from(twin: &'a DeliveryTwin) -> Self {
        let (message, partition) = (twin.message(), twin.partition());
        Self { message, partition, received_at: twin.received_at(), age: twin.age() }
    }
}

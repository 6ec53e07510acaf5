//! A message damaged past the adapter: the service changes none, so it is taken and sent again.

use anyqueue::{Error, ErrorKind, MessageId, Result};
use anyqueue_conformance::corrupted;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName as Name};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as TEXT;

/// Looks for a message, each of up to ten.
const LOOKS: usize = 20;

fn client(endpoint: &str) -> Client {
    let credentials = Credentials::new("test", "test", None, None, "test");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    Client::new(&config.build())
}

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "the message could not be sent again").with_source(error)
}

fn missing(what: &'static str) -> Error {
    Error::new(ErrorKind::Internal, what)
}

/// The envelope in a message's body.
fn envelope(message: &Message) -> Vec<u8> {
    TEXT.decode(message.body.as_deref().unwrap_or_default()).unwrap_or_default()
}

/// Damages the message with this id. All that are met on the way are released.
pub(crate) async fn corrupt(endpoint: &str, queue: &str, id: MessageId) -> Result<()> {
    let client = client(endpoint);
    let url = client.get_queue_url().queue_name(queue).send().await.map_err(refused)?.queue_url;
    let url = url.ok_or_else(|| missing("the queue has no URL"))?;
    let mut met = Vec::new();
    for _ in 0..LOOKS {
        let receive = client.receive_message().queue_url(&url).max_number_of_messages(10);
        let receive = receive.visibility_timeout(60).message_system_attribute_names(Name::All);
        met.extend(receive.send().await.map_err(refused)?.messages.unwrap_or_default());
        let is_it = |message: &Message| envelope(message).windows(16).any(|bytes| bytes == id.as_bytes());
        if let Some(found) = met.iter().position(is_it) {
            let found = met.swap_remove(found);
            send_damaged(&client, &url, &found).await?;
            return release(&client, &url, met).await;
        }
    }
    Err(missing("the message did not come"))
}

async fn send_damaged(client: &Client, url: &str, message: &Message) -> Result<()> {
    let body = TEXT.encode(corrupted(&envelope(message))?);
    let mut send = client.send_message().queue_url(url).message_body(body);
    if let Some(group) = message.attributes.as_ref().and_then(|all| all.get(&Name::MessageGroupId)) {
        let once = format!("damaged-{}", message.message_id.as_deref().unwrap_or_default());
        send = send.message_group_id(group).message_deduplication_id(once);
    }
    send.send().await.map_err(refused)?;
    let receipt = message.receipt_handle.as_deref().unwrap_or_default();
    client.delete_message().queue_url(url).receipt_handle(receipt).send().await.map(drop).map_err(refused)
}

async fn release(client: &Client, url: &str, met: Vec<Message>) -> Result<()> {
    for message in met {
        let receipt = message.receipt_handle.unwrap_or_default();
        let show = client.change_message_visibility().queue_url(url).receipt_handle(receipt);
        show.visibility_timeout(0).send().await.map_err(refused)?;
    }
    Ok(())
}

//! `anyqueue peek`: shows messages without taking them.

use anyqueue::{Browsed, MAX_PAGE, MessageId, MessageState, Page, PartitionId, Queue};
use clap::Args;

use crate::failure::{Failure, Result};
use crate::line::Line;
use crate::open::Create;
use crate::output::{Output, Table, duration, preview};
use crate::session::{Session, queue_name};

const EXAMPLES: &str = "\
Examples:
  anyqueue peek mail
  anyqueue peek mail --max 100 --json
  anyqueue peek mail --id 0197a3c4-5f2e-7c1a-9d8b-000000000001 --json

Nothing is delivered, counted or held up. Messages are sorted by id, which is the order in which they were created, not
the order of delivery. RabbitMQ and SQS cannot be browsed: there, use `anyqueue pull --settle waiting`,
sparingly on FIFO queues of SQS: they count it as a delivery, and a message that is delivered too often becomes a dead
letter.
Exit code 4: no message was found.";

/// Shows messages without taking them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Peek {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// How many to show at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    max: usize,
    /// Shows only the message with this id
    #[arg(long, value_name = "ID", conflicts_with = "max")]
    id: Option<MessageId>,
    /// Shows dead letters
    #[arg(long)]
    dead: bool,
}

impl Peek {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::Never).await?;
        let partition = if self.dead { self.queue.dead_letters() } else { self.queue.clone() };
        let mut table =
            Table::new(&["id", "state", "due in", "priority", "deliveries", "age", "bytes", "payload"]);
        let mut shown = 0;
        if let Some(id) = self.id {
            if let Some(browsed) = find(&queue, &partition, id).await? {
                show(session.output, &mut table, &partition, &browsed)?;
                shown = 1;
            }
        } else {
            let mut after = None;
            while shown < self.max {
                let room = (self.max - shown).min(MAX_PAGE);
                let page = queue.browse(&partition, Page::of(room).after(after)).await?;
                page.iter().try_for_each(|browsed| show(session.output, &mut table, &partition, browsed))?;
                shown += page.len();
                after = page.last().map(|browsed| browsed.message.id());
                if page.len() < room {
                    break;
                }
            }
        }
        if shown == 0 {
            session.output.note(&format!("{partition}: no message found"));
        }
        queue.close().await?;
        if shown == 0 {
            return Err(Failure::Nothing);
        }
        if session.output.json { Ok(()) } else { table.print(session.output) }
    }
}

/// Returns the message with this id, if it exists.
pub(crate) async fn find(queue: &Queue, partition: &PartitionId, id: MessageId) -> Result<Option<Browsed>> {
    let page = queue.browse(partition, Page::of(1).after(before(id))).await?;
    Ok(page.into_iter().next().filter(|browsed| browsed.message.id() == id))
}

/// The id just before this one: browsing after it begins with this one. `None` for the smallest id.
fn before(id: MessageId) -> Option<MessageId> {
    let number = u128::from_be_bytes(*id.as_bytes()).checked_sub(1)?;
    Some(MessageId::from_bytes(number.to_be_bytes()))
}

fn show(output: Output, table: &mut Table, partition: &PartitionId, browsed: &Browsed) -> Result {
    let Browsed { message, state, delivery_count, age, due_in, .. } = browsed;
    let state = match state {
        MessageState::Ready => "ready",
        MessageState::Delayed => "delayed",
        MessageState::Leased => "leased",
        MessageState::Disabled => "disabled",
    };
    if output.json {
        let mut line = Line::of(message).aged(*age);
        line.queue = Some(partition.name().to_owned());
        line.state = Some(state.to_owned());
        line.deliveries = *delivery_count;
        line.due_in_ms = due_in.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        return output.object(&line);
    }
    table.row([
        message.id().to_string(),
        state.to_owned(),
        due_in.map_or_else(|| "-".to_owned(), duration),
        message.options().priority.to_string(),
        delivery_count.map_or_else(|| "?".to_owned(), |count| count.to_string()),
        if age.is_zero() { "?".to_owned() } else { duration(*age) },
        message.payload().len().to_string(),
        preview(message.payload(), 40),
    ]);
    Ok(())
}

-- The headers that a settlement gave to a message that cannot be read: its body must stay as it is. An envelope without a payload.
ALTER TABLE anyqueue_message ADD COLUMN headers BLOB;

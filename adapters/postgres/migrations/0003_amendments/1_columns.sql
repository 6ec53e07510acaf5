-- Amendments of what waits: another priority, moment or group, or being set aside; messages that become urgent at a moment; groups that
-- are claimed whole.

ALTER TABLE message
    -- When it gets the highest level, unless it has it already. What is ready is due then, so that somebody looks at it; or at once, where
    -- it was in another state meanwhile.
    ADD COLUMN urgent timestamptz,
    -- Of one that is set aside: when it is due once it is no longer. Such a message is in state 2, and due at 'infinity': so nobody looks
    -- for it, and whoever deals with what is delayed deals with it too.
    ADD COLUMN due_then timestamptz,
    -- Its place among the members of its group, where that is not `pos`: what is postponed keeps it.
    ADD COLUMN joined bigint;

-- Several members can be in front of their group (`head`): one that is on offer is alone there, but several can be held or postponed.
-- The others stand in line behind them, by their places in the group.
CREATE INDEX message_front ON message (part, grp) WHERE head;
CREATE INDEX message_line ON message (part, grp, coalesce(joined, pos)) WHERE state = 3;
DROP INDEX message_head;
DROP INDEX message_blocked;
-- A head of before was the first of its group, whatever its `pos` has become since. After the indexes are made: what is changed first in
-- the same transaction keeps them from being used while older transactions last.
UPDATE message SET joined = 0 WHERE head;

-- When somebody has to look at what is ready, if it becomes urgent at this moment or never.
CREATE FUNCTION urgent_due(p_urgent timestamptz, p_now timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_urgent IS NOT NULL THEN greatest(p_urgent, p_now) END $$;

-- The lane from now on of a message that is in this one, and becomes urgent at this moment or never.
CREATE FUNCTION lane_at(p_lane smallint, p_urgent timestamptz, p_now timestamptz) RETURNS smallint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_urgent <= p_now THEN p_lane - p_lane % 100 + (p_lane & 1) ELSE p_lane END::smallint $$;

-- That moment from now on: none once it is over.
CREATE FUNCTION to_come(p_urgent timestamptz, p_now timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_urgent > p_now THEN p_urgent END $$;

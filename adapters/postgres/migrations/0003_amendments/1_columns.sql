-- Amendments of what waits: another priority, moment or group, or being set aside; and messages that become urgent at a moment.

ALTER TABLE message
    -- When it gets the highest level, unless it has it already. What is ready is due then, so that somebody looks at it; or at once, where
    -- it was in another state meanwhile.
    ADD COLUMN urgent timestamptz,
    -- Of one that is set aside: when it is due once it is no longer. Such a message is in state 2, and due at 'infinity': so nobody looks
    -- for it, and whoever deals with what is delayed deals with it too.
    ADD COLUMN due_then timestamptz;

-- When somebody has to look at what is ready, if it becomes urgent at this moment or never.
CREATE FUNCTION urgent_due(p_urgent timestamptz, p_now timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_urgent IS NOT NULL THEN greatest(p_urgent, p_now) END $$;

-- The lane from now on of a message that is in this one, and becomes urgent at this moment or never.
CREATE FUNCTION lane_at(p_lane smallint, p_urgent timestamptz, p_now timestamptz) RETURNS smallint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_urgent <= p_now THEN p_lane - p_lane % 100 + (p_lane & 1) ELSE p_lane END::smallint $$;

-- That moment from now on: none once it is over.
CREATE FUNCTION to_come(p_urgent timestamptz, p_now timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_urgent > p_now THEN p_urgent END $$;

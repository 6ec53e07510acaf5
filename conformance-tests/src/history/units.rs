//! How times and partitions are written in a history: as milliseconds, with a fraction where there is one,
//! and as `name` or `name:dead`.

/// For fields that are left out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The value of a number that was left out.
pub(super) fn one() -> usize {
    1
}

/// For numbers that are left out.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
pub(super) fn is_one(number: &usize) -> bool {
    *number == 1
}

/// A duration in milliseconds, exact to the microsecond.
pub(crate) mod ms {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let time = super::whole_us(*time);
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if us.is_multiple_of(1000) {
            return (us / 1000).serialize(serializer);
        }
        time.div_duration_f64(Duration::from_millis(1)).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        let time = Duration::try_from_secs_f64(ms / 1e3).map_err(serde::de::Error::custom)?;
        Ok(super::whole_us(time + Duration::from_nanos(500)))
    }
}

/// The same for an optional duration.
pub(crate) mod opt_ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    struct Wrapped(#[serde(with = "super::ms")] Duration);

    #[allow(clippy::ref_option, reason = "serde hands over a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::ms::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Wrapped>::deserialize(deserializer)?.map(|wrapped| wrapped.0))
    }
}

/// A partition. No name contains a colon.
pub(crate) mod place {
    use anyqueue::PartitionId;
    use serde::{Deserialize as _, Deserializer, Serializer};

    const DEAD: &str = ":dead";

    pub(crate) fn serialize<S: Serializer>(place: &PartitionId, serializer: S) -> Result<S::Ok, S::Error> {
        let mark = if place.is_dead_letters() { DEAD } else { "" };
        serializer.collect_str(&format_args!("{}{mark}", place.name()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PartitionId, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (name, dead) = text.strip_suffix(DEAD).map_or((text.as_str(), false), |name| (name, true));
        let place = PartitionId::new(name).map_err(serde::de::Error::custom)?;
        Ok(if dead { place.dead_letters() } else { place })
    }
}

/// Drops anything below a microsecond, so that what was written is read back the same.
pub(super) fn whole_us(time: std::time::Duration) -> std::time::Duration {
    std::time::Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

//! Where a row is: what the server calls a tid, the quickest way to the row.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

#[derive(Clone, Copy)]
pub(super) struct Place([u8; 6]);

impl Type<Postgres> for Place {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(27))
    }
}

impl PgHasArrayType for Place {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1010))
    }
}

impl Encode<'_, Postgres> for Place {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buf.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Place {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(value.as_bytes()?.try_into()?))
    }
}

//! Columns of values for `unnest($n::type[])`: one statement, one text, any number of rows.

use sea_orm::Value;
use sea_orm::sea_query::ValueType;

/// An array of the items' own type.
pub(super) fn array<T: Into<Value> + ValueType>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(T::array_type(), Some(Box::new(items.into_iter().map(Into::into).collect())))
}

/// An array of the words of states.
pub(super) fn words<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> Value {
    array(items.into_iter().map(|word| word.to_string()))
}

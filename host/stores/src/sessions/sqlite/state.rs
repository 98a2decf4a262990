//! Rows of state: reads, and batched writes.

use hatchery_core::{JsonMap, SessionKey, State, StateScope, is_state_removal};
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, query_as, query_with};

use super::queries;

/// Batch sizes in descending order, so that few different statements are prepared and few are executed.
const BATCHES: [usize; 3] = [64, 8, 1];

/// Reads a session's own and shared state.
pub(super) async fn read(connection: &mut SqliteConnection, key: &SessionKey, row: i64) -> Result<State, sqlx::Error> {
    let rows = query_as(queries::STATE).bind(row).bind(&*key.app).bind(&*key.user).fetch_all(connection).await?;
    from_rows(rows)
}

/// Builds state from rows of keys and values.
pub(super) fn from_rows(rows: Vec<(String, String)>) -> Result<State, sqlx::Error> {
    let mut state = State::default();
    for (name, value) in rows {
        state.set(&name, from_json(&value)?);
    }
    Ok(state)
}

/// Parses a value.
pub(super) fn from_json(text: &str) -> Result<serde_json::Value, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Applies a delta to the rows of the session, its user and its app.
pub(super) async fn apply(
    connection: &mut SqliteConnection,
    key: &SessionKey,
    row: i64,
    delta: &JsonMap,
) -> Result<(), sqlx::Error> {
    for table in [Table::Session, Table::User, Table::App] {
        let entries = || delta.iter().filter(|(name, _)| StateScope::of(name).0 == table.scope());
        let removed: Vec<&str> =
            entries().filter(|(_, value)| is_state_removal(value)).map(|(name, _)| name.as_str()).collect();
        let set: Vec<(&str, String)> = entries()
            .filter(|(_, value)| !is_state_removal(value))
            .map(|(name, value)| (name.as_str(), value.to_string()))
            .collect();
        for batch in batches(&removed) {
            let mut arguments = table.owner(key, row)?;
            for name in batch {
                add(&mut arguments, name)?;
            }
            query_with(AssertSqlSafe(table.delete_sql(batch.len())), arguments).execute(&mut *connection).await?;
        }
        for batch in batches(&set) {
            let mut arguments = table.owner(key, row)?;
            for (name, value) in batch {
                add(&mut arguments, name)?;
                add(&mut arguments, value.as_str())?;
            }
            query_with(AssertSqlSafe(table.upsert_sql(batch.len())), arguments).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// The three tables of state.
#[derive(Debug, Clone, Copy)]
pub(super) enum Table {
    /// Keys of one session.
    Session,
    /// `user:` keys.
    User,
    /// `app:` keys.
    App,
}

impl Table {
    fn scope(self) -> StateScope {
        match self {
            Self::Session => StateScope::Session,
            Self::User => StateScope::User,
            Self::App => StateScope::App,
        }
    }

    /// Returns the table's name, and the columns that identify the owner of a key.
    fn columns(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Session => ("session_state", &["session"]),
            Self::User => ("user_state", &["app", "user"]),
            Self::App => ("app_state", &["app"]),
        }
    }

    /// Returns the values of the owner columns.
    fn owner(self, key: &SessionKey, row: i64) -> Result<SqliteArguments, sqlx::Error> {
        let mut arguments = SqliteArguments::default();
        match self {
            Self::Session => arguments.add(row).map_err(sqlx::Error::Encode)?,
            Self::User => {
                add(&mut arguments, &key.app)?;
                add(&mut arguments, &key.user)?;
            }
            Self::App => add(&mut arguments, &key.app)?,
        }
        Ok(arguments)
    }

    /// Returns a statement that sets `rows` keys. Its parameters are the owner, then the key and value of each.
    pub(super) fn upsert_sql(self, rows: usize) -> String {
        let (table, owner) = self.columns();
        let owner_parameters: Vec<String> = (1..=owner.len()).map(|number| format!("?{number}")).collect();
        let row = |index: usize| {
            let first = owner.len() + 1 + 2 * index;
            format!("({}, ?{first}, ?{})", owner_parameters.join(", "), first + 1)
        };
        let rows: Vec<String> = (0..rows).map(row).collect();
        format!(
            "INSERT INTO {table} ({}, key, value) VALUES {} ON CONFLICT DO UPDATE SET value = excluded.value",
            owner.join(", "),
            rows.join(", ")
        )
    }

    /// Returns a statement that deletes `rows` keys. Its parameters are the owner, then each key.
    pub(super) fn delete_sql(self, rows: usize) -> String {
        let (table, owner) = self.columns();
        let conditions: Vec<String> =
            owner.iter().enumerate().map(|(index, column)| format!("{column} = ?{}", index + 1)).collect();
        let keys: Vec<String> = (0..rows).map(|index| format!("?{}", owner.len() + 1 + index)).collect();
        format!("DELETE FROM {table} WHERE {} AND key IN ({})", conditions.join(" AND "), keys.join(", "))
    }
}

fn add(arguments: &mut SqliteArguments, text: &str) -> Result<(), sqlx::Error> {
    arguments.add(text.to_owned()).map_err(sqlx::Error::Encode)
}

/// Splits rows into batches of the sizes in [`BATCHES`].
fn batches<T>(rows: &[T]) -> impl Iterator<Item = &[T]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let size = BATCHES.into_iter().find(|size| *size <= rest.len())?;
        let (batch, remaining) = rest.split_at_checked(size)?;
        rest = remaining;
        Some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_split_into_few_sizes() {
        let sizes = |rows: usize| batches(&vec![0; rows]).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(0), [] as [usize; 0]);
        assert_eq!(sizes(9), [8, 1]);
        assert_eq!(sizes(1000).len(), 15 + 5);
        assert_eq!(sizes(1000).iter().sum::<usize>(), 1000);
    }

    #[test]
    fn statements_have_a_parameter_for_every_value() {
        assert_eq!(
            Table::User.upsert_sql(2),
            "INSERT INTO user_state (app, user, key, value) VALUES (?1, ?2, ?3, ?4), (?1, ?2, ?5, ?6) \
             ON CONFLICT DO UPDATE SET value = excluded.value"
        );
        assert_eq!(Table::Session.delete_sql(2), "DELETE FROM session_state WHERE session = ?1 AND key IN (?2, ?3)");
    }
}

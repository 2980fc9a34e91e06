package conformance;

import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Savepoint;

/** PostgreSQL JDBC: setAutoCommit(false), commit, rollback, and savepoints. */
final class Jdbc implements Database {
  private final HikariDataSource pool;

  Jdbc(HikariDataSource pool) {
    this.pool = pool;
  }

  @Override
  public void transaction(String isolation, Body body) throws Exception {
    try (var connection = pool.getConnection()) {
      connection.setAutoCommit(false);
      try {
        var own = new OfConnection(connection);
        // setTransactionIsolation would be the session's, and behind a pooler anybody's
        if (!isolation.equals("read committed")) own.execute("set transaction isolation level " + isolation);
        body.run(own);
        connection.commit();
      } catch (Exception error) {
        undo(error, connection::rollback);
        throw error;
      }
    }
  }

  @Override
  public void alone(Body body) throws Exception {
    try (var connection = pool.getConnection()) {
      body.run(new OfConnection(connection));
    }
  }

  @Override
  public void close() {
    pool.close();
  }

  private interface Undo {
    void run() throws SQLException;
  }

  /** What cannot be undone any more does not hide why. */
  private static void undo(Exception error, Undo undo) {
    try {
      undo.run();
    } catch (SQLException lost) {
      error.addSuppressed(lost);
    }
  }

  private record OfConnection(Connection connection) implements Statements {
    @Override
    public void execute(String sql, Object... values) throws SQLException {
      try (var statement = prepared(sql, values)) {
        statement.execute();
      }
    }

    @Override
    public Completion complete(String sql, Object... values) throws SQLException {
      try (var statement = prepared(sql, values);
          var rows = statement.executeQuery()) {
        rows.next();
        return new Completion(rows.getString("job_id"), rows.getString("outcome"));
      }
    }

    @Override
    public void nested(Body body) throws Exception {
      Savepoint savepoint = connection.setSavepoint();
      try {
        body.run(this);
        connection.releaseSavepoint(savepoint);
      } catch (Exception error) {
        undo(error, () -> connection.rollback(savepoint));
        throw error;
      }
    }

    private PreparedStatement prepared(String sql, Object... values) throws SQLException {
      var statement = connection.prepareStatement(sql);
      for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
      return statement;
    }
  }
}

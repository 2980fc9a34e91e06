package conformance;

import com.zaxxer.hikari.HikariDataSource;
import java.lang.reflect.UndeclaredThrowableException;
import java.sql.PreparedStatement;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.support.JdbcTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.support.TransactionTemplate;

/** Spring: TransactionTemplate over the DataSourceTransactionManager that Boot makes, and PROPAGATION_NESTED. */
final class Spring implements Database {
  private final HikariDataSource pool;
  private final JdbcTemplate jdbc;
  private final JdbcTransactionManager manager;
  private final Statements statements = new OfThread();

  Spring(HikariDataSource pool) {
    this.pool = pool;
    jdbc = new JdbcTemplate(pool);
    manager = new JdbcTransactionManager(pool);
  }

  @Override
  public void transaction(String isolation, Body body) {
    var template = new TransactionTemplate(manager);
    // what is not asked for is the server's default; what is, Spring sets for the session, and sets back
    if (!isolation.equals("read committed")) {
      template.setIsolationLevelName("ISOLATION_" + isolation.toUpperCase().replace(' ', '_'));
    }
    run(template, body);
  }

  @Override
  public void alone(Body body) throws Exception {
    body.run(statements);
  }

  @Override
  public void close() {
    pool.close();
  }

  private void run(TransactionTemplate template, Body body) {
    template.executeWithoutResult(
        status -> {
          try {
            body.run(statements);
          } catch (RuntimeException error) {
            throw error;
          } catch (Exception error) {
            throw new UndeclaredThrowableException(error);
          }
        });
  }

  /** The transaction is the thread's: nobody hands it around. */
  private final class OfThread implements Statements {
    @Override
    public void execute(String sql, Object... values) {
      jdbc.execute(
          sql,
          (PreparedStatement statement) -> {
            for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
            return statement.execute();
          });
    }

    @Override
    public Completion complete(String sql, Object... values) {
      return jdbc.queryForObject(
          sql, (row, number) -> new Completion(row.getString("job_id"), row.getString("outcome")), values);
    }

    @Override
    public void nested(Body body) {
      var template = new TransactionTemplate(manager);
      template.setPropagationBehavior(TransactionDefinition.PROPAGATION_NESTED);
      run(template, body);
    }
  }
}

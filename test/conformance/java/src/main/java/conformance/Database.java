package conformance;

/** A driver with one connection, which is replaced when it was lost. */
interface Database extends AutoCloseable {
  /** The driver's own transaction block: rolled back when the body throws. */
  void transaction(String isolation, Body body) throws Exception;

  /** Statements by themselves, outside any transaction. */
  void alone(Body body) throws Exception;

  @Override
  void close();

  interface Body {
    void run(Statements statements) throws Exception;
  }

  record Completion(String jobId, String outcome) {}

  interface Statements {
    void execute(String sql, Object... values) throws Exception;

    /** The one row of complete_job. */
    Completion complete(String sql, Object... values) throws Exception;

    /** The driver's nested transaction: rolled back alone when the body throws. */
    void nested(Body body) throws Exception;
  }
}

package conformance;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import conformance.Database.Completion;
import conformance.Database.Statements;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** The conformance program of Java: what README.md beside this folder says, for the drivers of Jdbc.java and Spring.java. */
public final class Main {
  private static final String TOKEN =
      "job_id => ?, run_lease => ?, claim_slot => ?, receipt_id => ?, batch_id => ?, batch_index => ?";
  private static final String WRITE = "insert into application_rows (tag) values (?)";
  private static final String EXPECT = "select awa.expect_completion(" + TOKEN + ")";
  private static final String COMPLETE =
      "select job_id, outcome from awa.complete_job(" + TOKEN + ", progress => cast(? as jsonb))";
  private static final String ENQUEUE = "select * from awa.insert_job('conformance-follow-up', '{}', 'other')";
  private static final String IMMEDIATE = "set constraints all immediate";

  private static final Map<String, Function<HikariDataSource, Database>> DRIVERS =
      Map.of("jdbc", Jdbc::new, "spring", Spring::new);

  record Request(String url, String transaction, List<Attempt> attempts, List<Step> steps) {}

  record Step(@JsonProperty("do") String what, boolean swallow, String progress, List<Step> steps) {}

  record Result(String end, String message, List<Completion> completions) {}

  record Answer(List<Result> results, long micros) {}

  record Attempt(String tag, Map<String, String> token) {
    /** A token's fields as the driver's parameters are: 64-bit and 32-bit integers, or NULL. */
    Object[] parameters() {
      return new Object[] {
        bigint("job_id"),
        bigint("run_lease"),
        integer("claim_slot"),
        bigint("receipt_id"),
        bigint("batch_id"),
        integer("batch_index")
      };
    }

    private Long bigint(String field) {
      return token.get(field) == null ? null : Long.valueOf(token.get(field));
    }

    private Integer integer(String field) {
      return token.get(field) == null ? null : Integer.valueOf(token.get(field));
    }
  }

  /** The application's own error. */
  private static final class ApplicationException extends RuntimeException {}

  private final BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
  private final PrintStream output =
      new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
  private final ObjectMapper json =
      JsonMapper.builder().propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE).build();

  private void all(Statements tx, List<Step> steps, Attempt attempt, List<Completion> completions) throws Exception {
    for (var step : steps) {
      try {
        one(tx, step, attempt, completions);
      } catch (Exception error) {
        if (!step.swallow) throw error;
      }
    }
  }

  private void one(Statements tx, Step step, Attempt attempt, List<Completion> completions) throws Exception {
    switch (step.what) {
      case "write" -> tx.execute(WRITE, attempt.tag);
      case "expect" -> tx.execute(EXPECT, attempt.parameters());
      case "complete" -> {
        var values = Arrays.copyOf(attempt.parameters(), 7);
        values[6] = "oversized".equals(step.progress) ? oversized() : step.progress;
        completions.add(tx.complete(COMPLETE, values));
      }
      case "enqueue" -> tx.execute(ENQUEUE);
      case "immediate" -> tx.execute(IMMEDIATE);
      case "raise" -> throw new ApplicationException();
      case "pause" -> pause();
      case "nested" -> tx.nested(inner -> all(inner, step.steps, attempt, completions));
      default -> throw new IllegalArgumentException("no such step: " + step.what);
    }
  }

  private void pause() throws IOException {
    output.println("{\"paused\":true}");
    input.readLine();
  }

  /** More than 64 KiB of text that does not compress to less. */
  private static String oversized() {
    var text = new StringBuilder();
    for (int i = 0; i < 30_000; i++) text.append(Integer.toUnsignedString(i * 0x9E3779B1, 36));
    return "{\"text\":\"" + text + "\"}";
  }

  private static String endOf(Exception error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof ApplicationException) return "application";
      if (cause instanceof SQLException refused && refused.getSQLState() != null) return refused.getSQLState();
    }
    return "none";
  }

  private Result run(Database database, Request request, Attempt attempt) {
    var completions = new ArrayList<Completion>();
    Database.Body body = tx -> all(tx, request.steps, attempt, completions);
    try {
      if (request.transaction == null) database.alone(body);
      else database.transaction(request.transaction, body);
      return new Result("committed", "", completions);
    } catch (Exception error) {
      return new Result(endOf(error), error.toString(), completions);
    }
  }

  private static HikariDataSource pool(String url) {
    var server = URI.create(url);
    var login = server.getUserInfo().split(":", 2);
    var config = new HikariConfig();
    config.setJdbcUrl("jdbc:postgresql://" + server.getAuthority().replaceFirst("^.*@", "") + server.getPath());
    config.setUsername(login[0]);
    if (login.length > 1) config.setPassword(login[1]);
    config.setMaximumPoolSize(1);
    // Behind a pooler in transaction mode a statement prepared by name is met by another session. The driver prepares one when
    // it came five times; in a url: prepareThreshold=0.
    config.addDataSourceProperty("prepareThreshold", "0");
    return new HikariDataSource(config);
  }

  private void serve(Function<HikariDataSource, Database> open) throws IOException {
    Database database = null;
    String url = null;
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      var request = json.readValue(line, Request.class);
      if (!request.url.equals(url)) {
        if (database != null) database.close();
        database = open.apply(pool(request.url));
        url = request.url;
      }
      var results = new ArrayList<Result>();
      var begun = System.nanoTime();
      for (var attempt : request.attempts) results.add(run(database, request, attempt));
      var micros = (System.nanoTime() - begun) / 1000;
      output.println(json.writeValueAsString(new Answer(results, micros)));
    }
  }

  public static void main(String[] arguments) throws IOException {
    var open = arguments.length == 1 ? DRIVERS.get(arguments[0]) : null;
    if (open == null) throw new IllegalArgumentException("the name of a driver is wanted: " + DRIVERS.keySet());
    new Main().serve(open);
  }
}

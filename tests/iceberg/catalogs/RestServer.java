import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's reference implementation of a REST catalog over the JDBC catalog `cat`, on a free port of loopback, which it
 * writes to a file. Arguments: the JDBC URL, the warehouse, the file, and more properties of the catalog as NAME=VALUE.
 */
public class RestServer {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    properties.put("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    properties.put("uri", arguments[0]);
    properties.put("warehouse", arguments[1]);
    properties.put("jdbc.schema-version", "V1");
    properties.put("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO");
    for (int place = 3; place < arguments.length; place++) {
      String[] property = arguments[place].split("=", 2);
      properties.put(property[0], property[1]);
    }
    RESTCatalogAdapter adapter =
        new RESTCatalogAdapter(CatalogUtil.buildIcebergCatalog("cat", properties, new Configuration()));
    Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    server.setHandler(context);
    server.start();
    Path unfinished = Path.of(arguments[2] + ".new");
    Files.writeString(unfinished, "" + ((ServerConnector) server.getConnectors()[0]).getLocalPort());
    Files.move(unfinished, Path.of(arguments[2]));
    server.join();
  }
}

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.exceptions.NotFoundException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
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

  /**
   * Files of the catalog in one container of Azure Blob Storage, by plain requests to the URL and with the signature that
   * `blobs.url` and `blobs.sas` name: ADLSFileIO would need all of Microsoft's SDK.
   */
  public static class BlobFileIO implements FileIO {
    private final HttpClient client = HttpClient.newHttpClient();
    private String url;
    private String sas;

    @Override
    public void initialize(Map<String, String> properties) {
      url = properties.get("blobs.url");
      sas = properties.get("blobs.sas");
    }

    private HttpResponse<byte[]> send(String path, HttpRequest.Builder request) {
      String key = path.replaceFirst("^abfss://[^/]*/", "").replace("=", "%3D");
      try {
        URI uri = URI.create(url + "/" + key + "?" + sas);
        return client.send(request.uri(uri).build(), HttpResponse.BodyHandlers.ofByteArray());
      } catch (IOException | InterruptedException error) {
        throw new IllegalStateException("no answer for " + path, error);
      }
    }

    private byte[] read(String path) {
      HttpResponse<byte[]> answer = send(path, HttpRequest.newBuilder().GET());
      if (answer.statusCode() == 404) {
        throw new NotFoundException("no blob %s", path);
      }
      return answer.body();
    }

    @Override
    public InputFile newInputFile(String path) {
      return new InputFile() {
        @Override
        public long getLength() {
          return read(path).length;
        }

        @Override
        public SeekableInputStream newStream() {
          byte[] all = read(path);
          return new SeekableInputStream() {
            private int at = 0;

            @Override
            public long getPos() {
              return at;
            }

            @Override
            public void seek(long position) {
              at = (int) position;
            }

            @Override
            public int read() {
              return at < all.length ? all[at++] & 0xff : -1;
            }
          };
        }

        @Override
        public String location() {
          return path;
        }

        @Override
        public boolean exists() {
          return send(path, HttpRequest.newBuilder().GET()).statusCode() == 200;
        }
      };
    }

    @Override
    public OutputFile newOutputFile(String path) {
      return new OutputFile() {
        @Override
        public PositionOutputStream create() {
          ByteArrayOutputStream all = new ByteArrayOutputStream();
          return new PositionOutputStream() {
            @Override
            public long getPos() {
              return all.size();
            }

            @Override
            public void write(int value) {
              all.write(value);
            }

            @Override
            public void close() throws IOException {
              HttpRequest.BodyPublisher body = HttpRequest.BodyPublishers.ofByteArray(all.toByteArray());
              int status =
                  send(path, HttpRequest.newBuilder().PUT(body).header("x-ms-blob-type", "BlockBlob")).statusCode();
              if (status != 201) {
                throw new IOException(status + " for " + path);
              }
            }
          };
        }

        @Override
        public PositionOutputStream createOrOverwrite() {
          return create();
        }

        @Override
        public String location() {
          return path;
        }

        @Override
        public InputFile toInputFile() {
          return newInputFile(path);
        }
      };
    }

    @Override
    public void deleteFile(String path) {
      send(path, HttpRequest.newBuilder().DELETE());
    }
  }
}

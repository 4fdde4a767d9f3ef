(* Runs the tests of Reader, Writer, Tcp and Io in the way that the environment selects. *)

let () =
  Common.set_up ();
  Alcotest.run ~and_exit:true "io" 
    [
      ("reader", Reader_tests.tests);
      ("writer", Writer_tests.tests);
      ("tcp", Tcp_tests.tests);
      ("io", Io_tests.tests);
    ]
